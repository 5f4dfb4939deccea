"""Commands, one file each: parse, call one function, print."""
