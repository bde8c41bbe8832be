//! Table tests of `decide`.
