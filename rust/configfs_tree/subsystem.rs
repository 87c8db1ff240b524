// SPDX-License-Identifier: GPL-2.0

//! Registration of a subsystem: a directory in the root of configfs.

use core::mem::offset_of;
use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::error::to_result;
use kernel::ffi::c_char;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::types::Opaque;
use kernel::ModuleMetadata;

use crate::directory::{self, Directory, Parent};

/// The module that implements a kind of parent.
type ModuleOf<R> = <<R as Parent>::Child as Directory>::Module;

/// A subsystem, and its value.
///
/// # Invariants
///
/// If configfs has it, `subsystem` is initialised with the type [`Root::TYPE`], and the reference count of its
/// item, which is in the first field, counts for the memory.
#[repr(C)]
struct Root<R: Parent> {
    subsystem: Opaque<bindings::configfs_subsystem>,
    /// Nothing is made any more. That is looked at with the subsystem's mutex.
    closed: Atomic<bool>,
    value: R,
}

// The address of the item is the subsystem's, and the root's.
const _: () = assert!(offset_of!(bindings::configfs_subsystem, su_group) == 0);

impl<R: Parent> Root<R> {
    const ITEM_OPERATIONS: bindings::configfs_item_operations =
        bindings::configfs_item_operations {
            release: Some(release::<R>),
            allow_link: None,
            drop_link: None,
        };

    const GROUP_OPERATIONS: bindings::configfs_group_operations =
        directory::operations(make_group::<R>, drop_item::<R>);

    const TYPE: bindings::config_item_type = bindings::config_item_type {
        ct_owner: ModuleOf::<R>::THIS_MODULE.as_ptr().cast(),
        ct_item_ops: &Self::ITEM_OPERATIONS,
        ct_group_ops: &Self::GROUP_OPERATIONS,
        ct_attrs: ptr::null_mut(),
        ct_bin_attrs: ptr::null_mut(),
    };
}

/// A registered subsystem, in which users make directories; dropping it unregisters it.
///
/// A module registers it when everything else is ready: directories may be made before this is returned, and if the
/// module then failed to load, it would go in spite of them.
///
/// # Invariants
///
/// It owns a reference to the item of the root, which is registered.
pub struct Subsystem<R: Parent>(NonNull<Root<R>>, TextRef);

// SAFETY: A subsystem may be unregistered by any thread; the value is `Send`.
unsafe impl<R: Parent> Send for Subsystem<R> {}
// SAFETY: A shared reference gives access to nothing.
unsafe impl<R: Parent> Sync for Subsystem<R> {}

impl<R: Parent> Subsystem<R> {
    /// Registers a subsystem.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EEXIST` if there is one of that name; and what configfs says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Not in a callback of configfs.
    pub fn new(name: &CStr, value: R) -> Result<Self> {
        let root = KBox::new(
            Root {
                subsystem: Opaque::zeroed(),
                closed: Atomic::new(false),
                value,
            },
            GFP_KERNEL,
        )?;
        let root = NonNull::from(KBox::leak(root));
        let subsystem = root.as_ptr().cast::<bindings::configfs_subsystem>();
        let item = subsystem.cast::<bindings::config_item>();
        // SAFETY: The subsystem was zeroed, as C functions want it, and nobody else has it. Both arguments
        // of the name are strings, and the name is copied.
        let registered = unsafe {
            (*item).ci_type = &Root::<R>::TYPE;
            bindings::config_group_init(item.cast());
            bindings::configfs_tree_init_mutex(subsystem);
            to_result(bindings::config_item_set_name(
                item,
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            ))
            .and_then(|()| to_result(bindings::configfs_register_subsystem(subsystem)))
        };
        if let Err(e) = registered {
            // SAFETY: It is not registered; this is the only reference.
            unsafe { bindings::config_item_put(item) };
            return Err(e);
        }
        // INVARIANT: It is registered, and the first reference is this one.
        Ok(Self(root, TextRef::new()))
    }
}

impl<R: Parent> Drop for Subsystem<R> {
    fn drop(&mut self) {
        let subsystem = self.0.as_ptr().cast::<bindings::configfs_subsystem>();
        // SAFETY: By the type invariant.
        let root = unsafe { self.0.as_ref() };
        root.closed.store(true, Relaxed);
        // SAFETY: By the type invariant. The mutex is taken and released in it, so that whoever makes a
        // directory either has made it, or finds the subsystem closed.
        if !unsafe { bindings::configfs_tree_is_empty(subsystem) } {
            // configfs cannot unregister it then. While the module is being unloaded, that cannot be.
            pr_err!("A subsystem with directories is dropped: it stays\n");
            // SAFETY: The module is this one.
            unsafe {
                bindings::configfs_tree_keep_module(ModuleOf::<R>::THIS_MODULE.as_ptr().cast())
            };
            return;
        }
        // SAFETY: It is registered, and it stays empty. When it is unregistered, whoever was in the directory
        // has left it: `mkdir` and `rmdir` keep its inode locked, which this takes. The reference is
        // the one that this type owns.
        unsafe {
            bindings::configfs_unregister_subsystem(subsystem);
            bindings::config_item_put(subsystem.cast());
        }
    }
}

/// Frees a subsystem.
///
/// # Safety
///
/// Called for the item of a `Root<R>` to which there is no reference any more.
unsafe extern "C" fn release<R: Parent>(item: *mut bindings::config_item) {
    // SAFETY: The root was in a box, and the reference count owned it.
    drop(unsafe { KBox::from_raw(item.cast::<Root<R>>()) });
}

/// # Safety
///
/// Called by configfs for the group of a `Root<R>` that is registered, with a string, under the mutex.
unsafe extern "C" fn make_group<R: Parent>(
    group: *mut bindings::config_group,
    name: *const c_char,
) -> *mut bindings::config_group {
    // SAFETY: By this function's requirements.
    let (root, name) = unsafe { (&*group.cast::<Root<R>>(), CStr::from_char_ptr(name)) };
    if root.closed.load(Relaxed) {
        return ENOENT.to_ptr();
    }
    directory::make(&root.value, name)
}

/// # Safety
///
/// Called by configfs for the group of a `Root<R>` and an item that [`make_group`] has made in it, with
/// references to both. The one to the item which that had given to configfs is given back.
unsafe extern "C" fn drop_item<R: Parent>(
    group: *mut bindings::config_group,
    item: *mut bindings::config_item,
) {
    // SAFETY: By this function's requirements.
    unsafe { directory::remove(&(*group.cast::<Root<R>>()).value, item) };
}
