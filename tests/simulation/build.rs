//! Compiles the library with the switch that plants bugs in its protocol.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=model");
}
