//! Rebuilds when a migration is added: the migrations are embedded, and the compiler watches only
//! the files that were there the last time.

#[allow(
    clippy::print_stdout,
    reason = "a build script speaks to cargo on stdout"
)]
fn main() {
    println!("cargo:rerun-if-changed=../migrations/wallet");
}
