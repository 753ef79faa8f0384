//! Matrix products by another crate.
#![allow(unsafe_code)]

/// A matrix product by the crate `gemm` on one thread: `[m, k]` times `[k, n]`, rows of both one
/// after another.
pub fn gemm(m: usize, k: usize, n: usize, a: &[f32], b: &[f32], out: &mut [f32]) {
    assert!(a.len() >= m * k && b.len() >= k * n && out.len() >= m * n);
    let (k_stride, n_stride) = (k as isize, n as isize);
    let (to, a, b) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    let one_thread = gemm::Parallelism::None;
    // SAFETY: the three matrices lie inside their slices.
    unsafe {
        gemm::gemm(
            m, n, k, to, 1, n_stride, false, a, 1, k_stride, b, 1, n_stride, 0.0, 1.0, false, false, false, one_thread,
        );
    }
}
