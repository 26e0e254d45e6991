//! Compiles the library with what only the tests of this repository need.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=instrumented");
}
