"""A third-party plugin as small as one can be; tests put it on the path as the distribution `puffer-toy`."""
