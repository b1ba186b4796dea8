"""What makes a driver's JVM start cheaply, on this machine: which Java and Spark there are, their archive, and how it is made."""
