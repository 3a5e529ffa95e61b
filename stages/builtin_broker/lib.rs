//! builtin_broker
