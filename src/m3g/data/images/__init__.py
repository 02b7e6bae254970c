"""Image folders, arrays of images, domains and augmentation."""
