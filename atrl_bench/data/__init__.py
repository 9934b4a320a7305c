"""Where datasets and models are: in a folder or on the hub, at a fixed commit, fetched, checked and unpacked safely."""
