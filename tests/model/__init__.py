"""An explicit-state model of the protocol: `protocol` is its specification, `explore` searches it."""
