//! The program `ttl-index`.

fn main() {}
