"""Parts that several solvers share: ascent on the dual, Newton system, weights, couplings, precision, memory."""
