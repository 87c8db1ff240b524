// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/net/<interface>/`: the files that the C driver has there, too.

use core::fmt::Write;

use ipoib_netdev::device::Device;
use ipoib_netdev::files::{File, Files, Page};
use ipoib_netdev::rtnl::Rtnl;
use ipoib_proto::pkey::PKey;
use ipoib_proto::text;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;

use crate::base::interface::Interface;
use crate::ctl::{changes, children};

const MODE: usize = 0;
const PKEY: usize = 1;
const UMCAST: usize = 2;
const PARENT: usize = 3;
const CREATE_CHILD: usize = 4;
const DELETE_CHILD: usize = 5;

#[vtable]
impl Files for Interface {
    const FILES: &'static [File] = &[
        File {
            name: c"mode",
            mode: 0o644,
        },
        File {
            name: c"pkey",
            mode: 0o444,
        },
        File {
            name: c"umcast",
            mode: 0o644,
        },
        File {
            name: c"parent",
            mode: 0o444,
        },
        File {
            name: c"create_child",
            mode: 0o200,
        },
        File {
            name: c"delete_child",
            mode: 0o200,
        },
    ];

    fn has_file(dev: &Device<Self>, id: usize) -> bool {
        match id {
            PARENT => dev.data().is_child(),
            CREATE_CHILD | DELETE_CHILD => !dev.data().is_child(),
            _ => true,
        }
    }

    fn show(dev: &Device<Self>, id: usize, page: &mut Page<'_>) -> Result {
        let this = dev.data();
        match id {
            MODE if this.is_connected() => writeln!(page, "connected")?,
            MODE => writeln!(page, "datagram")?,
            PKEY => writeln!(page, "{:#06x}", this.pkey().get())?,
            UMCAST => writeln!(page, "{}", u8::from(this.umcast.load(Relaxed)))?,
            PARENT => {
                this.with_parent(&mut |parent| parent.with_name(|name| page.write_bytes(name)));
                writeln!(page)?;
            }
            _ => return Err(EINVAL),
        }
        Ok(())
    }

    fn store(dev: &Device<Self>, id: usize, text: &[u8], rtnl: &mut Rtnl) -> Result {
        match id {
            MODE => Self::set_connected(dev, is_connected(text)?, rtnl),
            UMCAST => {
                let umcast = text::number(text).ok_or(EINVAL)? != 0;
                changes::set_umcast(dev, umcast);
                Ok(())
            }
            CREATE_CHILD => children::create(dev, pkey(text)?, rtnl),
            DELETE_CHILD => children::delete(dev, pkey(text)?.1, rtnl),
            _ => Err(EINVAL),
        }
    }
}

fn is_connected(text: &[u8]) -> Result<bool> {
    match text {
        b"datagram" => Ok(false),
        b"connected" => Ok(true),
        _ => Err(EINVAL),
    }
}

/// A P_Key as it was written, and the partition that it names.
fn pkey(text: &[u8]) -> Result<(u16, PKey)> {
    let raw = text::number(text).and_then(|number| u16::try_from(number).ok());
    let raw = raw.ok_or(EINVAL)?;
    Ok((raw, PKey::new(raw).ok_or(EINVAL)?.to_full()))
}
