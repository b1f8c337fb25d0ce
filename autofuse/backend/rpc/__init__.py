"""Sessions on devices elsewhere, over TVM's RPC."""
