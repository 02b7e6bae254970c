"""What several solvers use: weights, Newton system, precision, memory, forms of couplings."""
