// SPDX-License-Identifier: GPL-2.0

//! Directories, and the ways that they come and go.

use core::marker::PhantomData;
use core::mem::{offset_of, MaybeUninit};
use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_char;
use kernel::prelude::*;
use kernel::types::Opaque;
use kernel::ModuleMetadata;

use crate::binary::{BinaryFile, MAX_BINARY_FILES};
use crate::file::{File, MAX_FILES};

/// A kind of directory, of which each value belongs to one.
///
/// # Context
///
/// The value is dropped in process context, possibly under the subsystem's mutex; it may sleep.
pub trait Directory: Sized + Send + Sync + 'static {
    /// The module that implements this.
    type Module: ModuleMetadata;

    /// The files, of which there are at most [`MAX_FILES`].
    const FILES: &'static [File<Self>] = &[];

    /// The files of bytes, of which there are at most [`MAX_BINARY_FILES`].
    const BINARY_FILES: &'static [BinaryFile<Self>] = &[];

    /// The directories that users make in it.
    const CHILDREN: Children<Self> = Children::NONE;

    /// Adds the directories that come and go with it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`. With any error, the directory is not made.
    ///
    /// # Context
    ///
    /// Process context under the subsystem's mutex, after [`Parent::make`].
    fn furnish(&self, _defaults: &mut Defaults<'_>) -> Result {
        Ok(())
    }
}

/// A directory in which users make directories.
///
/// # Context
///
/// Both methods are called in process context, one at a time in a subsystem, under its mutex and locks of the
/// file system. They may sleep. They may take locks that `show` and `store` take.
pub trait Parent: Sized + Send + Sync + 'static {
    /// The kind of directories.
    type Child: Directory;

    /// Makes the value of a new directory. No other one here has the name.
    ///
    /// # Errors
    ///
    /// Those that `mkdir` is to give.
    fn make(&self, name: &str) -> Result<Self::Child>;

    /// Ends what [`Parent::make`] has begun: for each value it is called once. The files are gone. It is
    /// called as well if `make` has made the value, but configfs could not make the directory.
    fn remove(&self, child: &Self::Child);
}

/// The group of a directory, and its value.
///
/// # Invariants
///
/// If it is in a [`Handle`] or has been given to configfs, `group` is initialised with the type
/// [`Entry::TYPE`], and the reference count of its item, which is in the first field, counts for the memory.
#[repr(C)]
pub(crate) struct Entry<T: Directory> {
    group: Opaque<bindings::config_group>,
    value: T,
}

// An item's address is the group's, and the entry's.
const _: () = assert!(offset_of!(bindings::config_group, cg_item) == 0);

impl<T: Directory> Entry<T> {
    const ITEM_OPERATIONS: bindings::configfs_item_operations =
        bindings::configfs_item_operations {
            release: Some(release::<T>),
            allow_link: None,
            drop_link: None,
        };

    const FILES: [*const File<T>; MAX_FILES + 1] = list(T::FILES);

    const BINARY_FILES: [*const BinaryFile<T>; MAX_BINARY_FILES + 1] = list(T::BINARY_FILES);

    const TYPE: bindings::config_item_type = bindings::config_item_type {
        ct_owner: T::Module::THIS_MODULE.as_ptr().cast(),
        ct_item_ops: &Self::ITEM_OPERATIONS,
        ct_group_ops: T::CHILDREN.operations,
        // configfs reads it only.
        ct_attrs: ptr::from_ref(&Self::FILES).cast_mut().cast(),
        // As above.
        ct_bin_attrs: ptr::from_ref(&Self::BINARY_FILES).cast_mut().cast(),
    };

    /// The value of a directory.
    ///
    /// # Safety
    ///
    /// `item` has to be that of an `Entry<T>`, to which there is a reference for `'a`.
    pub(crate) unsafe fn value<'a>(item: *mut bindings::config_item) -> &'a T {
        // SAFETY: By the safety requirement; `item` is where the entry is. The value is shared only, and
        // `T` is `Sync`.
        unsafe { &(*item.cast::<Self>()).value }
    }
}

/// Files as configfs takes them: pointers, of which the one behind the last is null. Both kinds are attributes of its.
const fn list<F, const N: usize>(files: &'static [F]) -> [*const F; N] {
    assert!(files.len() < N);
    let mut list = [ptr::null(); N];
    let mut i = 0;
    while i < files.len() {
        list[i] = &raw const files[i];
        i += 1;
    }
    list
}

/// Frees a directory.
///
/// # Safety
///
/// Called for the item of an `Entry<T>` to which there is no reference any more.
unsafe extern "C" fn release<T: Directory>(item: *mut bindings::config_item) {
    // SAFETY: The item is in a group, which the directories that came with it were added to. Nobody goes
    // through its list: they are linked no more, as each link is a reference to this one.
    unsafe { bindings::configfs_remove_default_groups(item.cast()) };
    // SAFETY: The entry was in a box, and the reference count owned it. The caller, which has freed the
    // name, reads it no more.
    drop(unsafe { KBox::from_raw(item.cast::<Entry<T>>()) });
}

/// A reference to a directory that configfs does not know yet.
///
/// # Invariants
///
/// It owns a reference to the item of the entry.
struct Handle<T: Directory>(NonNull<Entry<T>>);

impl<T: Directory> Handle<T> {
    /// The first reference to a directory without a name.
    fn new(place: KBox<MaybeUninit<Entry<T>>>, value: T) -> Self {
        let entry = KBox::write(
            place,
            Entry {
                group: Opaque::zeroed(),
                value,
            },
        );
        let entry = NonNull::from(KBox::leak(entry));
        let group = entry.as_ptr().cast::<bindings::config_group>();
        // SAFETY: The group was zeroed, as C functions want it, and nobody else has it.
        unsafe {
            (*group).cg_item.ci_type = &Entry::<T>::TYPE;
            bindings::config_group_init(group);
        }
        // INVARIANT: The group is initialised, with a reference count of 1.
        Self(entry)
    }

    fn item(&self) -> *mut bindings::config_item {
        self.0.as_ptr().cast()
    }

    fn value(&self) -> &T {
        // SAFETY: By the type invariant.
        unsafe { Entry::value(self.item()) }
    }

    /// Gives the directory a name, and the directories that come with it.
    fn complete(&self, name: &CStr) -> Result {
        // SAFETY: The item is initialised, and nobody else has it; both arguments are strings, and the
        // name is copied.
        to_result(unsafe {
            bindings::config_item_set_name(self.item(), c"%s".as_char_ptr(), name.as_char_ptr())
        })?;
        self.value().furnish(&mut Defaults {
            group: self.item().cast(),
            _handle: PhantomData,
        })
    }

    /// The group, with the reference to it.
    fn into_group(self) -> *mut bindings::config_group {
        let group = self.item().cast();
        core::mem::forget(self);
        group
    }
}

impl<T: Directory> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::config_item_put(self.item()) };
    }
}

/// The directories that come and go with another one.
///
/// # Invariants
///
/// `group` is that of a directory that configfs does not know yet.
pub struct Defaults<'a> {
    group: *mut bindings::config_group,
    _handle: PhantomData<&'a ()>,
}

impl Defaults<'_> {
    /// Adds a directory. No other one and no file there may have its name.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn add<T: Directory>(&mut self, name: &'static CStr, value: T) -> Result {
        let handle = Handle::new(KBox::new_uninit(GFP_KERNEL)?, value);
        handle.complete(name)?;
        // SAFETY: By the type invariant, nobody else has the list. The reference to the new group is the
        // list's, whose end `release` is.
        unsafe { bindings::configfs_tree_add_default(handle.into_group(), self.group) };
        Ok(())
    }
}

/// The kind of directories that users make in a directory: none, or those of a [`Parent`].
///
/// # Invariants
///
/// `operations` is null, or a table for directories of type `T`.
pub struct Children<T> {
    operations: *const bindings::configfs_group_operations,
    _directory: PhantomData<fn(T) -> T>,
}

impl<T: Directory> Children<T> {
    /// None: `mkdir` gives `EPERM`.
    // INVARIANT: It is null.
    pub const NONE: Self = Self {
        operations: ptr::null(),
        _directory: PhantomData,
    };
}

impl<T: Directory + Parent> Children<T> {
    const OPERATIONS: bindings::configfs_group_operations =
        operations(make_group::<T>, drop_item::<T>);

    /// Functions for those that the directory makes.
    // INVARIANT: The functions are those for the type.
    pub const MADE: Self = Self {
        operations: &Self::OPERATIONS,
        _directory: PhantomData,
    };
}

/// A function that makes a directory in another one.
type MakeGroup =
    unsafe extern "C" fn(*mut bindings::config_group, *const c_char) -> *mut bindings::config_group;

/// A function that removes it.
type DropItem = unsafe extern "C" fn(*mut bindings::config_group, *mut bindings::config_item);

pub(crate) const fn operations(
    make_group: MakeGroup,
    drop_item: DropItem,
) -> bindings::configfs_group_operations {
    bindings::configfs_group_operations {
        make_item: None,
        make_group: Some(make_group),
        disconnect_notify: None,
        drop_item: Some(drop_item),
        is_visible: None,
        is_bin_visible: None,
    }
}

/// # Safety
///
/// Called by configfs for the group of an `Entry<T>`, to which it has a reference, with a string.
unsafe extern "C" fn make_group<T: Directory + Parent>(
    group: *mut bindings::config_group,
    name: *const c_char,
) -> *mut bindings::config_group {
    // SAFETY: By this function's requirements.
    let (parent, name) = unsafe { (Entry::<T>::value(group.cast()), CStr::from_char_ptr(name)) };
    make(parent, name)
}

/// # Safety
///
/// Called by configfs for the group of an `Entry<T>` and an item that [`make_group`] has made in it, with
/// references to both. The one to the item which that had given to configfs is given back.
unsafe extern "C" fn drop_item<T: Directory + Parent>(
    group: *mut bindings::config_group,
    item: *mut bindings::config_item,
) {
    // SAFETY: By this function's requirements.
    unsafe { remove(Entry::<T>::value(group.cast()), item) };
}

/// Makes a directory: its group, with a reference to it, or an error in place of one.
pub(crate) fn make<P: Parent>(parent: &P, name: &CStr) -> *mut bindings::config_group {
    match try_make(parent, name) {
        Ok(child) => child.into_group(),
        Err(e) => e.to_ptr(),
    }
}

fn try_make<P: Parent>(parent: &P, name: &CStr) -> Result<Handle<P::Child>> {
    let place = KBox::new_uninit(GFP_KERNEL)?;
    let text = name.to_str().map_err(|_| EINVAL)?;
    let child = Handle::new(place, parent.make(text)?);
    if let Err(e) = child.complete(name) {
        parent.remove(child.value());
        return Err(e);
    }
    Ok(child)
}

/// Removes a directory.
///
/// # Safety
///
/// `item` has to be the item of a group that [`make`] has made for the same parent. The reference to it which
/// that gave is given back; there has to be another one.
pub(crate) unsafe fn remove<P: Parent>(parent: &P, item: *mut bindings::config_item) {
    // SAFETY: By this function's requirements.
    parent.remove(unsafe { Entry::value(item) });
    // SAFETY: As above.
    unsafe { bindings::config_item_put(item) };
}
