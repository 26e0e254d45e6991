//! Compiles the protocol with what only the model needs of it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=instrumented");
}
