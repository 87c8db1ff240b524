-- SPDX-License-Identifier: GPL-2.0
--
-- Wireshark dissector of IPoIB frames as ipoib_rs sends them: the encapsulation header of RFC 4391 with a sequence
-- number in its reserved field, the extended header, and the EtherTypes that stand for one.
--
--   wireshark -X lua_script:ipoib_rs.lua FILE
--
-- or copy it to the directory of personal Lua plugins (Help, About Wireshark, Folders).

local ipoib_rs = Proto("ipoib_rs", "IP over InfiniBand with sequence numbers")

local EXTENDED = 0x0101
local CREDIT_ONLY = 0

local types = {
	[0x0800] = "IPv4",
	[0x0806] = "ARP",
	[0x8035] = "RARP",
	[0x86dd] = "IPv6",
	[0x88ca] = "TIPC",
	[EXTENDED] = "Extended",
	[0x0102] = "TCP over IPv4 without a checksum",
	[0x0103] = "TCP over IPv6 without a checksum",
	[0x0104] = "UDP over IPv4 without a checksum",
	[0x0105] = "UDP over IPv6 without a checksum",
}

-- EtherTypes of what follows a type that stands for an extended header.
local compact = {
	[0x0102] = 0x0800,
	[0x0103] = 0x86dd,
	[0x0104] = 0x0800,
	[0x0105] = 0x86dd,
}

local inner_types = {
	[CREDIT_ONLY] = "None: a credit limit alone",
	[0x0800] = "IPv4",
	[0x86dd] = "IPv6",
}

local segments = {
	[0] = "None",
	[1] = "TCP over IPv4",
	[4] = "TCP over IPv6",
	[5] = "UDP",
}

local f = {
	type = ProtoField.uint16("ipoib_rs.type", "Type", base.HEX, types),
	number = ProtoField.uint16("ipoib_rs.number", "Sequence number", base.DEC, nil, nil, "0 if the frame has none"),
	flags = ProtoField.uint8("ipoib_rs.flags", "Flags", base.HEX),
	needs_csum = ProtoField.bool("ipoib_rs.flags.needs_csum", "Checksum is still to be computed", 8, nil, 0x01),
	gso = ProtoField.uint8("ipoib_rs.gso", "Segments", base.HEX),
	gso_type = ProtoField.uint8("ipoib_rs.gso.type", "Kind", base.DEC, segments, 0x7f),
	gso_ecn = ProtoField.bool("ipoib_rs.gso.ecn", "CWR in the first segment only", 8, nil, 0x80),
	gso_size = ProtoField.uint16("ipoib_rs.gso.size", "Payload of a segment", base.DEC),
	csum_start = ProtoField.uint16("ipoib_rs.csum.start", "Checksum begins at", base.DEC),
	csum_offset = ProtoField.uint16("ipoib_rs.csum.offset", "Checksum is stored at", base.DEC, nil, nil,
		"Counted from where it begins"),
	inner_type = ProtoField.uint16("ipoib_rs.inner_type", "Type of the packet", base.HEX, inner_types),
	credit = ProtoField.uint16("ipoib_rs.credit", "Credit limit", base.DEC, nil, nil,
		"Messages that the peer may have sent by then, modulo 65536"),
}
ipoib_rs.fields = {
	f.type, f.number, f.flags, f.needs_csum, f.gso, f.gso_type, f.gso_ecn, f.gso_size, f.csum_start,
	f.csum_offset, f.inner_type, f.credit,
}

local opcode = Field.new("infiniband.bth.opcode")
local ethertypes = DissectorTable.get("ethertype")

-- Opcodes of packets that begin with the header: datagrams, and the first or only packets of messages.
local begins = { [0x64] = true, [0x00] = true, [0x04] = true }

local HEADER_LEN = 4
local EXTENDED_LEN = 12

-- Returns true if the bytes behind the headers can be what the type says.
local function fits(tvb, offset, ether_type)
	if ether_type ~= 0x0800 and ether_type ~= 0x86dd then
		return true
	end
	if tvb:captured_len() <= offset then
		return false
	end
	local version = tvb(offset, 1):bitfield(0, 4)
	return version == (ether_type == 0x0800 and 4 or 6)
end

-- Offset and EtherType of the packet inside; nil if this is no frame of IPoIB.
local function inside(tvb)
	if tvb:captured_len() < HEADER_LEN then
		return nil
	end
	local ether_type = tvb(0, 2):uint()
	if not types[ether_type] then
		return nil
	end
	if ether_type ~= EXTENDED then
		return HEADER_LEN, compact[ether_type] or ether_type
	end
	local offset = HEADER_LEN + EXTENDED_LEN
	if tvb:captured_len() < offset then
		return nil
	end
	local inner = tvb(HEADER_LEN + 8, 2):uint()
	if not inner_types[inner] then
		return nil
	end
	return offset, inner
end

local function extended(tvb, tree)
	local flags = tree:add(f.flags, tvb(0, 1))
	flags:add(f.needs_csum, tvb(0, 1))
	local gso = tree:add(f.gso, tvb(1, 1))
	gso:add(f.gso_type, tvb(1, 1))
	gso:add(f.gso_ecn, tvb(1, 1))
	tree:add(f.gso_size, tvb(2, 2))
	tree:add(f.csum_start, tvb(4, 2))
	tree:add(f.csum_offset, tvb(6, 2))
	tree:add(f.inner_type, tvb(8, 2))
	if tvb(8, 2):uint() == CREDIT_ONLY then
		tree:add(f.credit, tvb(10, 2))
	end
end

local function dissect(tvb, pinfo, tree)
	local offset, inner = inside(tvb)
	if not offset then
		return 0
	end
	local ether_type, number = tvb(0, 2):uint(), tvb(2, 2):uint()
	pinfo.cols.protocol = "IPoIB"
	pinfo.cols.info = types[ether_type]
	local item = tree:add(ipoib_rs, tvb(0, offset))
	item:append_text(", " .. types[ether_type])
	if number ~= 0 then
		item:append_text(", number " .. number)
	end
	item:add(f.type, tvb(0, 2))
	item:add(f.number, tvb(2, 2))
	if ether_type == EXTENDED then
		extended(tvb(HEADER_LEN, EXTENDED_LEN):tvb(), item)
	end
	if inner ~= CREDIT_ONLY and tvb:reported_len() > offset then
		ethertypes:try(inner, tvb(offset):tvb(), pinfo, tree)
	end
	return tvb:reported_len()
end

function ipoib_rs.dissector(tvb, pinfo, tree)
	return dissect(tvb, pinfo, tree)
end

-- Payload of InfiniBand may be anything: a frame has to look like one in every way.
local function heuristic(tvb, pinfo, tree)
	local code = opcode()
	if not code or not begins[code.value] then
		return false
	end
	local offset, inner = inside(tvb)
	if not offset or (inner ~= CREDIT_ONLY and not fits(tvb, offset, inner)) then
		return false
	end
	dissect(tvb, pinfo, tree)
	return true
end

ipoib_rs:register_heuristic("infiniband.payload", heuristic)
