// Stands in for the driver, of which nothing is called.
