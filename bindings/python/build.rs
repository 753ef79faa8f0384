//! Lets the sources ask for which Python they are built (`Py_GIL_DISABLED`).

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
