// SPDX-License-Identifier: GPL-2.0

//! Netlink attributes of a kind of link.
//!
//! C headers: [`include/net/netlink.h`](srctree/include/net/netlink.h).

use core::marker::PhantomData;

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::str::CStr;

/// The type of an attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A 16-bit number.
    U16,
    /// A 32-bit number.
    U32,
    /// A string of at most so many bytes, its terminating zero not counted.
    Text(u16),
}

/// The highest number of an attribute that rtnetlink takes (`RTNL_MAX_TYPE`).
pub(crate) const MAX: u16 = 50;

/// The attributes of a kind: number, from 1 to 50, and type of each.
pub type Policy = &'static [(u16, Type)];

/// The highest attribute of a policy, or 0.
pub(crate) const fn highest(policy: Policy) -> u16 {
    let (mut at, mut highest) = (0, 0);
    while at < policy.len() {
        if policy[at].0 > highest {
            highest = policy[at].0;
        }
        at += 1;
    }
    highest
}

/// Returns true if no number is that of two attributes.
pub const fn are_distinct(policy: Policy) -> bool {
    let mut at = 0;
    while at < policy.len() {
        let mut before = 0;
        while before < at {
            if policy[before].0 == policy[at].0 {
                return false;
            }
            before += 1;
        }
        at += 1;
    }
    true
}

/// Makes the table by which netlink checks a request.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn table(policy: Policy) -> Result<KVec<bindings::nla_policy>> {
    let count = usize::from(highest(policy)) + 1;
    let mut table = KVec::with_capacity(count, GFP_KERNEL)?;
    for number in 0..count {
        let mut entry: bindings::nla_policy = pin_init::zeroed();
        let known = policy.iter().find(|known| usize::from(known.0) == number);
        match known.map(|known| known.1) {
            Some(Type::U16) => entry.type_ = bindings::NLA_U16 as u8,
            Some(Type::U32) => entry.type_ = bindings::NLA_U32 as u8,
            Some(Type::Text(len)) => {
                entry.type_ = bindings::NLA_NUL_STRING as u8;
                entry.len = len;
            }
            // The first entry is no attribute's.
            None if number == 0 => {}
            None => entry.type_ = bindings::NLA_REJECT as u8,
        }
        table.push(entry, GFP_KERNEL)?;
    }
    Ok(table)
}

/// The room that all attributes take in a message, in bytes.
pub(crate) fn room(policy: Policy) -> usize {
    let payloads = policy.iter().map(|(_, holds)| match holds {
        Type::U16 => size_of::<u16>(),
        Type::U32 => size_of::<u32>(),
        Type::Text(len) => usize::from(*len) + 1,
    });
    payloads
        // SAFETY: Pure arithmetic.
        .map(|len| unsafe { bindings::ipoib_rs_nla_total_size(len as c_int) })
        .sum()
}

/// The attributes of a request.
///
/// # Invariants
///
/// `data` is null or an array of `highest(policy) + 1` pointers, each null or to an attribute that netlink has
/// checked by [`table`].
pub struct Attributes<'a> {
    data: *mut *mut bindings::nlattr,
    policy: Policy,
    _lifetime: PhantomData<&'a bindings::nlattr>,
}

impl<'a> Attributes<'a> {
    /// Wraps a pointer.
    ///
    /// # Safety
    ///
    /// `data` must be as the type invariant says, during `'a`.
    pub(crate) unsafe fn from_raw(data: *mut *mut bindings::nlattr, policy: Policy) -> Self {
        // INVARIANT: By this function's requirements.
        Self {
            data,
            policy,
            _lifetime: PhantomData,
        }
    }

    /// The value of attribute `number`, of type `holds`, if it was given. It is aligned to 4 bytes.
    fn find(&self, number: u16, holds: Type) -> Option<*const c_void> {
        if self.data.is_null() || !self.policy.contains(&(number, holds)) {
            return None;
        }
        // SAFETY: It is in the policy, and so within the array by the type invariant.
        let attribute = unsafe { *self.data.add(usize::from(number)) };
        // The value follows the header.
        (!attribute.is_null()).then(|| attribute.wrapping_add(1).cast_const().cast())
    }
}

/// Netlink message that `fill_info` writes attributes to.
///
/// # Invariants
///
/// `skb` is a netlink message under construction.
pub struct Message<'a> {
    skb: *mut bindings::sk_buff,
    _lifetime: PhantomData<&'a mut bindings::sk_buff>,
}

impl Message<'_> {
    /// Wraps a pointer.
    ///
    /// # Safety
    ///
    /// `skb` must be a netlink message under construction, during `'a`.
    pub(crate) unsafe fn from_raw<'a>(skb: *mut bindings::sk_buff) -> Message<'a> {
        // INVARIANT: By this function's requirements.
        Message {
            skb,
            _lifetime: PhantomData,
        }
    }
}

/// A type that [`link_attributes`](crate::link_attributes) takes.
pub trait Value {
    /// The type in the policy.
    const HOLDS: Type;
    /// A value of a request.
    type Asked<'a>;
    /// A value that is told.
    type Told<'a>;

    /// The value of attribute `number`, if it was given.
    fn get<'a>(attributes: &Attributes<'a>, number: u16) -> Option<Self::Asked<'a>>;

    /// Appends attribute `number`.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: no room.
    fn put(message: &mut Message<'_>, number: u16, value: Self::Told<'_>) -> Result;
}

/// Implements [`Value`] for numbers.
macro_rules! numbers {
    ($($type:ty = $holds:expr),*) => {$(
        impl Value for $type {
            const HOLDS: Type = $holds;
            type Asked<'a> = $type;
            type Told<'a> = $type;

            fn get(attributes: &Attributes<'_>, number: u16) -> Option<$type> {
                let value = attributes.find(number, Self::HOLDS)?;
                // SAFETY: Checked to be one by the type invariant.
                Some(unsafe { value.cast::<$type>().read() })
            }

            fn put(message: &mut Message<'_>, number: u16, value: $type) -> Result {
                let len = size_of::<$type>() as c_int;
                let data = (&raw const value).cast();
                // SAFETY: A message under construction by the invariant; the bytes are copied.
                to_result(unsafe { bindings::nla_put(message.skb, number.into(), len, data) })
            }
        }
    )*};
}

numbers!(u16 = Type::U16, u32 = Type::U32);

/// A string of at most `MAX` bytes, told as bytes without a zero.
pub struct Text<const MAX: u16>;

impl<const MAX: u16> Value for Text<MAX> {
    const HOLDS: Type = Type::Text(MAX);
    type Asked<'a> = &'a CStr;
    type Told<'a> = &'a [u8];

    fn get<'a>(attributes: &Attributes<'a>, number: u16) -> Option<&'a CStr> {
        let text = attributes.find(number, Self::HOLDS)?;
        // SAFETY: Checked to be a string with its terminating zero by the type invariant, during `'a`.
        Some(unsafe { CStr::from_char_ptr(text.cast()) })
    }

    fn put(message: &mut Message<'_>, number: u16, value: &[u8]) -> Result {
        // nla_len has 16 bits and includes the header; 32 KiB are more than enough.
        let len = i16::try_from(value.len()).map_err(|_| EMSGSIZE)? as usize;
        let text = value.as_ptr().cast();
        // SAFETY: A message under construction by the invariant; the text is copied.
        to_result(unsafe { bindings::ipoib_rs_nla_put_text(message.skb, number.into(), text, len) })
    }
}

/// Declares the attributes of a kind of link: name, type, number, and where not all values are good, which are and how
/// others are refused. They become
///
/// * `Asked`, the values of a request, with `Asked::POLICY` for [`Link::ATTRIBUTES`](crate::link::Link::ATTRIBUTES);
/// * `Told`, the values of a device, all of which are written.
///
/// # Examples
///
/// ```ignore
/// link_attributes! {
///     /// Identifier of the VLAN.
///     id: u16 = 1, if |id| id < 4095, else c"The identifier must be below 4095";
///     /// Name of its group.
///     group: Text<15> = 2;
/// }
/// ```
#[macro_export]
macro_rules! link_attributes {
    ($(
        $(#[$doc:meta])*
        $name:ident: $type:ty = $number:literal $(, if $is_good:expr, else $refusal:literal)?;
    )*) => {
        /// Attributes of a request, those that it has.
        pub(crate) struct Asked<'a> {
            $($(#[$doc])* pub(crate) $name: Option<<$type as $crate::link::Value>::Asked<'a>>,)*
        }

        const _: () = assert!(
            $crate::link::are_distinct(Asked::POLICY),
            "two attributes have one number"
        );

        impl<'a> Asked<'a> {
            /// Numbers and types.
            pub(crate) const POLICY: $crate::link::Policy =
                &[$(($number, <$type as $crate::link::Value>::HOLDS)),*];

            /// Reads a request of that policy.
            pub(crate) fn new(attributes: &$crate::link::Attributes<'a>) -> Self {
                Self {
                    $($name: <$type as $crate::link::Value>::get(attributes, $number),)*
                }
            }

            /// Checks the values.
            ///
            /// # Errors
            ///
            /// The refusal of the first one that is not good.
            pub(crate) fn check(&self) -> core::result::Result<(), &'static ::kernel::str::CStr> {
                $($(
                    let is_good: fn(<$type as $crate::link::Value>::Asked<'a>) -> bool = $is_good;
                    if self.$name.is_some_and(|value| !is_good(value)) {
                        return Err($refusal);
                    }
                )?)*
                Ok(())
            }
        }

        /// Attributes of a device.
        pub(crate) struct Told<'a> {
            $($(#[$doc])* pub(crate) $name: <$type as $crate::link::Value>::Told<'a>,)*
        }

        impl Told<'_> {
            /// Appends all of them to a message.
            ///
            /// # Errors
            ///
            /// `EMSGSIZE`: no room.
            pub(crate) fn fill(
                self,
                message: &mut $crate::link::Message<'_>,
            ) -> ::kernel::error::Result {
                $(<$type as $crate::link::Value>::put(message, $number, self.$name)?;)*
                Ok(())
            }
        }
    };
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_netdev_attributes)]
mod tests {
    use super::*;
    use core::ptr;

    link_attributes! {
        /// A number with a limit.
        low: u16 = 1, if |low| low < 5, else c"too high";
        /// A number without.
        wide: u32 = 4;
        /// A name of few letters.
        name: Text<3> = 7;
    }

    /// Netlink checks a number as the type that it has first.
    #[test]
    fn a_number_is_one_attribute() {
        assert!(are_distinct(Asked::POLICY) && are_distinct(&[]));
        for policy in [
            &[(1, Type::U16), (1, Type::U16)],
            &[(7, Type::U16), (7, Type::Text(9))],
        ] {
            assert!(!are_distinct(policy));
        }
        assert!(!are_distinct(&[
            (2, Type::U32),
            (1, Type::U16),
            (2, Type::U16)
        ]));
    }

    /// A message of attributes, which is freed when it is dropped.
    struct Written(*mut bindings::sk_buff);

    impl Written {
        /// Writes one.
        fn new(told: Told<'_>) -> Result<Self> {
            let room = [0u8; 128];
            // SAFETY: The bytes are there, and copied.
            let skb =
                unsafe { bindings::ipoib_rs_skb_new(room.as_ptr().cast(), room.len() as u32) };
            if skb.is_null() {
                return Err(ENOMEM);
            }
            let written = Self(skb);
            // SAFETY: It is ours, and its bytes are room for others.
            unsafe { bindings::skb_trim(skb, 0) };
            // SAFETY: It is one under construction until the end of the call.
            told.fill(&mut unsafe { Message::from_raw(skb) })?;
            Ok(written)
        }

        /// Has netlink check it, and calls `f` with what is asked.
        fn ask<R>(&self, f: impl FnOnce(&Asked<'_>) -> R) -> Result<R> {
            let policy = table(Asked::POLICY)?;
            let mut found = [ptr::null_mut(); 8];
            // SAFETY: The message is ours, the policy has as many entries as there is room for.
            to_result(unsafe {
                bindings::__nla_parse(
                    found.as_mut_ptr(),
                    policy.len() as c_int - 1,
                    (*self.0).data.cast(),
                    (*self.0).len as c_int,
                    policy.as_ptr(),
                    bindings::netlink_validation_NL_VALIDATE_LIBERAL,
                    ptr::null_mut(),
                )
            })?;
            // SAFETY: They were just checked, and stay as long as the message.
            let attributes = unsafe { Attributes::from_raw(found.as_mut_ptr(), Asked::POLICY) };
            Ok(f(&Asked::new(&attributes)))
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let reason = bindings::skb_drop_reason_SKB_DROP_REASON_NOT_SPECIFIED;
            // SAFETY: It is ours.
            unsafe { bindings::sk_skb_reason_drop(ptr::null(), self.0, reason) };
        }
    }

    fn written(low: u16, name: &[u8]) -> Result<Written> {
        let wide = 70_000;
        Written::new(Told { low, wide, name })
    }

    /// Attributes are asked as they are told, in as much room as was said.
    #[test]
    fn attributes_are_read_as_written() -> Result {
        let written = written(4, b"abc")?;
        // SAFETY: It is ours.
        assert_eq!(room(Asked::POLICY), unsafe { (*written.0).len as usize });
        written.ask(|asked| {
            assert_eq!((asked.low, asked.wide), (Some(4), Some(70_000)));
            assert_eq!(asked.name.map(CStr::to_bytes), Some(&b"abc"[..]));
            assert!(asked.check().is_ok());
        })
    }

    /// A value beyond its limit is refused, by its text or by its policy.
    #[test]
    fn attributes_have_limits() -> Result {
        let refusal = written(5, b"abc")?.ask(|asked| asked.check().err())?;
        assert_eq!(refusal.map(CStr::to_bytes), Some(&b"too high"[..]));
        assert_eq!(written(4, b"abcd")?.ask(|_| ()), Err(EINVAL));
        Ok(())
    }

    /// No attribute has been asked where there are none.
    #[test]
    fn nothing_is_asked_by_nothing() {
        // SAFETY: Null stands for no attributes.
        let none = Asked::new(&unsafe { Attributes::from_raw(ptr::null_mut(), Asked::POLICY) });
        assert!(none.low.is_none() && none.wide.is_none() && none.name.is_none());
        assert!(none.check().is_ok());
    }
}
