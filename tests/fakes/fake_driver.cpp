// Replaces the driver, none of whose functions is called.
