//! Claims about the group state machine.
