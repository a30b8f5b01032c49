"""An explicit-state model of the protocol: `protocol` is its specification, with the steps of `engine`, `publisher` and
`reaper`; `explore` searches it."""
