"""What tests need: of projects that use the package, and of drivers that are written for it."""
