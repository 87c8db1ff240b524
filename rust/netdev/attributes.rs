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

    /// The value of attribute `number`, of a type that `is_such` accepts, if it was given. It is aligned to 4 bytes.
    fn find(&self, number: u16, is_such: fn(Type) -> bool) -> Option<*const c_void> {
        let known = self.policy.iter().find(|known| known.0 == number)?;
        if self.data.is_null() || !is_such(known.1) {
            return None;
        }
        // SAFETY: It is in the policy, and so within the array by the type invariant.
        let attribute = unsafe { *self.data.add(usize::from(number)) };
        // The value follows the header.
        (!attribute.is_null()).then(|| attribute.wrapping_add(1).cast_const().cast())
    }

    /// The value of a [`Type::U16`], if it was given.
    pub fn get(&self, number: u16) -> Option<u16> {
        let value = self.find(number, |holds| holds == Type::U16)?;
        // SAFETY: Checked to be one by the type invariant.
        Some(unsafe { value.cast::<u16>().read() })
    }

    /// The value of a [`Type::U32`], if it was given.
    pub fn get_u32(&self, number: u16) -> Option<u32> {
        let value = self.find(number, |holds| holds == Type::U32)?;
        // SAFETY: Checked to be one by the type invariant.
        Some(unsafe { value.cast::<u32>().read() })
    }

    /// The value of a [`Type::Text`], if it was given.
    pub fn get_text(&self, number: u16) -> Option<&'a CStr> {
        let text = self.find(number, |holds| matches!(holds, Type::Text(_)))?;
        // SAFETY: Checked to be a string with its terminating zero by the type invariant, during `'a`.
        Some(unsafe { CStr::from_char_ptr(text.cast()) })
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

    /// Appends a [`Type::U16`].
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: no room.
    pub fn put(&mut self, number: u16, value: u16) -> Result {
        self.put_bytes(number, value.to_ne_bytes())
    }

    /// Appends a [`Type::U32`].
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: no room.
    pub fn put_u32(&mut self, number: u16, value: u32) -> Result {
        self.put_bytes(number, value.to_ne_bytes())
    }

    fn put_bytes<const N: usize>(&mut self, number: u16, bytes: [u8; N]) -> Result {
        // SAFETY: A message under construction by the invariant; the bytes are copied.
        to_result(unsafe {
            bindings::nla_put(self.skb, number.into(), N as c_int, bytes.as_ptr().cast())
        })
    }

    /// Appends a [`Type::Text`]: `text`, which has no zero, and a zero.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: no room.
    pub fn put_text(&mut self, number: u16, text: &[u8]) -> Result {
        // nla_len has 16 bits and includes the header; 32 KiB are more than enough.
        let len = i16::try_from(text.len()).map_err(|_| EMSGSIZE)?;
        // SAFETY: As in `put_bytes`.
        to_result(unsafe {
            bindings::ipoib_rs_nla_put_text(
                self.skb,
                c_int::from(number),
                text.as_ptr().cast(),
                len as usize,
            )
        })
    }
}
