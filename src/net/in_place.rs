//! Boxes whose content is made where it will lie. `Box::new` makes it on the stack and copies it, which for the future of a
//! request is several KiB, most of them not yet in use.

/// A box of what `make` returns. `make` has to be inlined; otherwise this does the same as `Box::new`.
#[inline(always)]
pub fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_in_the_box_and_dropped_with_it() {
        let shared = std::rc::Rc::new(5);
        let made = boxed(|| [std::rc::Rc::clone(&shared), std::rc::Rc::clone(&shared)]);
        assert_eq!((*made[1], std::rc::Rc::strong_count(&shared)), (5, 3));
        drop(made);
        assert_eq!(std::rc::Rc::strong_count(&shared), 1);
    }
}
