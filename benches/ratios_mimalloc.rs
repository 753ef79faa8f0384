//! `ratios` with mimalloc in place of the system's allocator: nodes of the tree are small boxes, so
//! an engine's choice of an allocator is seen in inserts and evictions.

#[path = "ratios.rs"]
mod ratios;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    ratios::main();
}
