// Calls an exported library from Rust.
use std::ffi::{c_char, c_void, CStr};
use std::ptr::{null, null_mut};

#[link(name = "checked", kind = "static")]
#[link(name = "m")]
extern "C" {
    fn checked_create(options: *const c_void, program: *mut *mut c_void) -> i32;
    fn checked_destroy(program: *mut c_void);
    fn checked_init(program: *mut c_void) -> i32;
    fn checked_predict(program: *mut c_void, batch: i64, x: *const f32, result: *mut f32) -> i32;
    fn checked_error() -> *const c_char;
}

fn main() {
    let (x, mut y) = ([0.5f32; 3 * 4], [0f32; 3 * 3]);
    unsafe {
        let mut program = null_mut();
        assert_eq!(checked_create(null(), &mut program), 0);
        assert_eq!(checked_init(program), 0);
        assert_eq!(checked_predict(program, 3, x.as_ptr(), y.as_mut_ptr()), 0);
        assert_eq!(checked_predict(program, 65, x.as_ptr(), y.as_mut_ptr()), 4);
        println!("{}: {}", y[8], CStr::from_ptr(checked_error()).to_str().unwrap());
        checked_destroy(program);
    }
}
