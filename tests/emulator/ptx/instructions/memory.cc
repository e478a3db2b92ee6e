// Loads, stores and asynchronous copies, each checked for its reach and its alignment.
#include <algorithm>
#include <string>

#include "tests/emulator/ptx/instructions/clusters.h"
#include "tests/emulator/ptx/instructions/matrix.h"
#include "tests/emulator/ptx/machine/warp.h"

namespace ptx {
namespace {

enum class Space { kGlobal, kShared, kParameter };

std::string hex(std::uint64_t value) {
  static const char* digits = "0123456789abcdef";
  std::string text;
  do text.insert(text.begin(), digits[value & 15]);
  while ((value >>= 4) != 0);
  return "0x" + text;
}

// What lanes that take no part read and write.
alignas(16) std::byte nowhere[16];

template <Space kSpace>
void addresses(Warp& w, const Instruction& i, std::uint32_t slot, std::uint64_t* to) {
  const auto offset = static_cast<std::uint64_t>(std::int64_t{i.immediate});
  if (kSpace == Space::kShared && i.width == 4) {
    const auto* from = w.reg<std::uint32_t>(slot);
    for (unsigned l = 0; l < kLanes; ++l) to[l] = from[l] + offset;
  } else {
    const auto* from = w.reg<std::uint64_t>(slot);
    for (unsigned l = 0; l < kLanes; ++l) to[l] = from[l] + offset;
  }
}

// Where each lane's memory is; faults unless it is aligned to `size` and its `bytes` first ones are
// one allocation's.
template <Space kSpace>
void places(Warp& w, const Instruction& i, const std::uint64_t* address, unsigned size,
            unsigned bytes, std::byte** to) {
  const unsigned first = static_cast<unsigned>(std::countr_zero(w.mask));
  std::uint64_t low = address[first], high = low, bits = low;
  for (unsigned l = 0; l < kLanes; ++l) {
    const std::uint64_t a = (w.mask >> l & 1) != 0 ? address[l] : address[first];
    low = std::min(low, a);
    high = std::max(high, a);
    bits |= a;
  }
  if ((bits & (size - 1)) != 0)
    throw Fault("an address that is not aligned to " + std::to_string(size) + " bytes");
  std::byte* base = nullptr;
  if constexpr (kSpace == Space::kShared) {
    shared_offset(*w.block, low, bytes);
    shared_offset(*w.block, high, bytes);
    base = w.block->shared - kSharedStart;
  } else {
    simt::DeviceRange& range =
        (*w.block->ranges)[static_cast<std::size_t>(&i - w.block->program->code.data())];
    if (low < range.start || high + bytes > range.start + range.bytes) {
      range = simt::device_range(low);
      if (low < range.start || high + bytes > range.start + range.bytes)
        for (unsigned l = 0; l < kLanes; ++l)  // several allocations, or a fault
          if ((w.mask >> l & 1) != 0) global_pointer(w, i, address[l], bytes);
    }
  }
  for (unsigned l = 0; l < kLanes; ++l)
    to[l] = (w.mask >> l & 1) != 0 ? base + address[l] : nowhere;
}

template <class T>
void put_extended(Warp& w, std::uint32_t slot, unsigned width, const T* values, bool is_signed) {
  if (width == sizeof(T)) return put(w, slot, values);
  const auto extended = [&](unsigned l) -> std::uint64_t {
    if (is_signed)
      return static_cast<std::uint64_t>(
          static_cast<std::int64_t>(static_cast<std::make_signed_t<T>>(values[l])));
    return values[l];
  };
  if (width == 2)
    each_lane<std::uint16_t>(w, slot,
                             [&](unsigned l) { return static_cast<std::uint16_t>(extended(l)); });
  else if (width == 4)
    each_lane<std::uint32_t>(w, slot,
                             [&](unsigned l) { return static_cast<std::uint32_t>(extended(l)); });
  else
    each_lane<std::uint64_t>(w, slot, extended);
}

// Slots: the registers, as wide as `data_width` says (what they have beyond the data is its sign or
// zeros), then the address.
template <Space kSpace, class T, unsigned kParts, bool kSigned>
void load(Warp& w, const Instruction& i) {
  std::uint64_t address[kLanes];
  alignas(64) T values[kParts][kLanes];
  addresses<kSpace>(w, i, i.slot[kParts], address);
  if constexpr (kSpace == Space::kParameter) {
    for (unsigned l = 0; l < kLanes; ++l) {
      const std::uint64_t at = (w.mask >> l & 1) != 0 ? address[l] : 0;
      if (at + kParts * sizeof(T) > w.block->program->parameter_bytes)
        throw Fault("a load beyond the parameters");
      for (unsigned p = 0; p < kParts; ++p)
        std::memcpy(&values[p][l], w.block->parameters + at + p * sizeof(T), sizeof(T));
    }
  } else {
    std::byte* from[kLanes];
    const unsigned bytes = i.used_bytes != 0 ? i.used_bytes : kParts * sizeof(T);
    places<kSpace>(w, i, address, kParts * sizeof(T), bytes, from);
    if constexpr (kSpace == Space::kShared)
      for (unsigned l = 0; l < kLanes; ++l)
        if ((w.mask >> l & 1) != 0)
          note_read(w, l, static_cast<std::uint32_t>(address[l] - kSharedStart), bytes);
    for (unsigned l = 0; l < kLanes; ++l)
      for (unsigned p = 0; p < kParts; ++p)
        std::memcpy(&values[p][l], from[l] + p * sizeof(T), sizeof(T));
  }
  for (unsigned p = 0; p < kParts; ++p)
    put_extended(w, i.slot[p], i.data_width, values[p], kSigned);
}

// Slots: the address, then the registers, as wide as `data_width` says: their lowest bytes count.
template <Space kSpace, class T, unsigned kParts>
void store(Warp& w, const Instruction& i) {
  std::uint64_t address[kLanes];
  std::byte* to[kLanes];
  addresses<kSpace>(w, i, i.slot[0], address);
  places<kSpace>(w, i, address, kParts * sizeof(T), kParts * sizeof(T), to);
  if constexpr (kSpace == Space::kShared)
    for (unsigned l = 0; l < kLanes; ++l)
      if ((w.mask >> l & 1) != 0)
        note_write(w, l, static_cast<std::uint32_t>(address[l] - kSharedStart), kParts * sizeof(T));
  const std::size_t step = i.data_width;
  for (unsigned p = 0; p < kParts; ++p) {
    const std::byte* values = w.registers + i.slot[1 + p];
    for (unsigned l = 0; l < kLanes; ++l)
      std::memcpy(to[l] + p * sizeof(T), values + l * step, sizeof(T));
  }
}

template <Space kSpace, class T>
Handler load_of(unsigned parts, bool is_signed) {
  switch (parts) {
    case 1:
      return is_signed ? load<kSpace, T, 1, true> : load<kSpace, T, 1, false>;
    case 2:
      return is_signed ? load<kSpace, T, 2, true> : load<kSpace, T, 2, false>;
    case 4:
      return is_signed ? load<kSpace, T, 4, true> : load<kSpace, T, 4, false>;
    default:
      return nullptr;
  }
}
template <Space kSpace>
Handler load_from(unsigned bytes, unsigned parts, bool is_signed) {
  switch (bytes) {
    case 1:
      return load_of<kSpace, std::uint8_t>(parts, is_signed);
    case 2:
      return load_of<kSpace, std::uint16_t>(parts, is_signed);
    case 4:
      return load_of<kSpace, std::uint32_t>(parts, is_signed);
    case 8:
      return load_of<kSpace, std::uint64_t>(parts, is_signed);
    default:
      return nullptr;
  }
}
template <Space kSpace, class T>
Handler store_of(unsigned parts) {
  switch (parts) {
    case 1:
      return store<kSpace, T, 1>;
    case 2:
      return store<kSpace, T, 2>;
    case 4:
      return store<kSpace, T, 4>;
    default:
      return nullptr;
  }
}
template <Space kSpace>
Handler store_to(unsigned bytes, unsigned parts) {
  switch (bytes) {
    case 1:
      return store_of<kSpace, std::uint8_t>(parts);
    case 2:
      return store_of<kSpace, std::uint16_t>(parts);
    case 4:
      return store_of<kSpace, std::uint32_t>(parts);
    case 8:
      return store_of<kSpace, std::uint64_t>(parts);
    default:
      return nullptr;
  }
}

void arrive(Warp& w, const PendingCopy& copy, unsigned l) {
  Block& block = *w.block;
  std::byte* to = block.shared + copy.to[l];
  note_write(w, l, copy.to[l], copy.bytes);
  std::memcpy(to, copy.from[l], copy.valid[l]);
  std::memset(to + copy.valid[l], 0, copy.bytes - copy.valid[l]);
}

// cp.async: slots are the address in shared memory, that in global memory, and the number of bytes
// to read or the predicate that none is read. It arrives when its group is waited for; with `eager`
// at once, by chance.
template <unsigned kBytes, char kForm>
void copy_async(Warp& w, const Instruction& i) {
  std::unique_ptr<PendingCopy> copy;
  if (w.spare_copies.empty()) {
    copy = std::make_unique<PendingCopy>();
  } else {
    copy = std::move(w.spare_copies.back());
    w.spare_copies.pop_back();
  }
  copy->lanes = w.mask;
  copy->bytes = kBytes;
  copy->instruction = static_cast<std::uint32_t>(&i - w.block->program->code.data());
  const auto* to = w.reg<std::uint32_t>(i.slot[0]);
  const auto* from = w.reg<std::uint64_t>(i.slot[1]);
  for (unsigned l = 0; l < kLanes; ++l) {
    if ((w.mask >> l & 1) == 0) continue;
    std::uint32_t valid = kBytes;
    if (kForm == 's') valid = w.reg<std::uint32_t>(i.slot[2])[l];
    if (kForm == 'i' && w.reg<std::uint8_t>(i.slot[2])[l] != 0) valid = 0;
    if (valid > kBytes) throw Fault("an asynchronous copy of more bytes than it has");
    copy->to[l] = shared_offset(*w.block, to[l], kBytes);
    copy->valid[l] = static_cast<std::uint8_t>(valid);
    copy->from[l] = nullptr;
    copy->group[l] = w.committed[l];
    if (valid == 0) continue;
    if (from[l] % kBytes != 0)
      throw Fault("an asynchronous copy from an address that is not aligned to its " +
                  std::to_string(kBytes) + " bytes");
    copy->from[l] = global_pointer(w, i, from[l], valid);
  }
  if (w.block->eager && (*w.block->random)() % 2 == 0) {
    for (unsigned l = 0; l < kLanes; ++l)
      if ((copy->lanes >> l & 1) != 0) arrive(w, *copy, l);
    w.spare_copies.push_back(std::move(copy));
  } else {
    w.copies.push_back(std::move(copy));
  }
}

}  // namespace

void commit_copies(Warp& w, const Instruction&) {
  for (unsigned l = 0; l < kLanes; ++l) w.committed[l] += w.mask >> l & 1;
}

void wait_copies(Warp& w, const Instruction& i) {
  const auto pending = static_cast<std::uint32_t>(i.immediate);
  std::size_t kept = 0;
  for (auto& copy : w.copies) {
    for (unsigned l = 0; l < kLanes; ++l) {
      const Mask bit = Mask{1} << l;
      if ((copy->lanes & w.mask & bit) == 0 || copy->group[l] + pending >= w.committed[l]) continue;
      arrive(w, *copy, l);
      copy->lanes &= ~bit;
    }
    if (copy->lanes == 0)
      w.spare_copies.push_back(std::move(copy));
    else
      std::swap(w.copies[kept++], copy);
  }
  w.copies.resize(kept);
}

template <int kCount, bool kTransposed>
void load_matrices(Warp& w, const Instruction& i) {
  std::uint64_t address[kLanes];
  addresses<Space::kShared>(w, i, i.slot[kCount], address);
  std::uint16_t rows[kLanes][8];
  for (unsigned r = 0; r < 8 * kCount; ++r) {
    const std::uint32_t offset = shared_offset(*w.block, address[r], 16);
    note_read(w, LaneOrder::kWholeWarp, offset, 16);
    std::memcpy(rows[r], w.block->shared + offset, 16);
  }
  for (unsigned m = 0; m < kCount; ++m) {
    const std::uint16_t(*matrix)[8] = rows + 8 * m;
    each_lane<std::uint32_t>(w, i.slot[m], [&](unsigned l) {
      const unsigned row = l / 4, pair = 2 * (l % 4);
      const std::uint32_t low = kTransposed ? matrix[pair][row] : matrix[row][pair],
                          high = kTransposed ? matrix[pair + 1][row] : matrix[row][pair + 1];
      return low | high << 16;
    });
  }
}
template void load_matrices<2, false>(Warp&, const Instruction&);
template void load_matrices<2, true>(Warp&, const Instruction&);
template void load_matrices<4, false>(Warp&, const Instruction&);
template void load_matrices<4, true>(Warp&, const Instruction&);

std::uint32_t shared_offset(const Block& block, std::uint64_t address, unsigned bytes) {
  if (std::has_single_bit(bytes) && address % bytes != 0)
    throw Fault("address " + hex(address) + " of shared memory is not aligned to " +
                std::to_string(bytes) + " bytes");
  if (address < kSharedStart || address + bytes > kSharedStart + std::uint64_t{block.shared_bytes})
    throw Fault("address " + hex(address) + " is beyond the block's " +
                std::to_string(block.shared_bytes) + " bytes of shared memory, which begin at " +
                hex(kSharedStart));
  return static_cast<std::uint32_t>(address - kSharedStart);
}

std::byte* global_pointer(Warp& w, const Instruction& i, std::uint64_t address, unsigned bytes) {
  simt::DeviceRange& range =
      (*w.block->ranges)[static_cast<std::size_t>(&i - w.block->program->code.data())];
  if (address < range.start || address + bytes > range.start + range.bytes) {
    range = simt::device_range(address);
    if (range.bytes == 0) throw Fault("address " + hex(address) + " is in no device memory");
    if (address + bytes > range.start + range.bytes)
      throw Fault("address " + hex(address) + " with its " + std::to_string(bytes) +
                  " bytes is beyond its allocation");
  }
  return reinterpret_cast<std::byte*>(address);
}

namespace {

[[noreturn]] void race(unsigned me, const char* does, std::uint32_t at, std::uint8_t other,
                       const char* did) {
  throw Fault(
      "a race: warp " + std::to_string(me - 1) + " " + does + " byte " + std::to_string(at) +
      " of shared memory, which " +
      (other == Block::kMany ? std::string("other warps") : "warp " + std::to_string(other - 1)) +
      " " + did + " without a barrier in between");
}

[[noreturn]] void race_of_lanes(const Warp& w, unsigned lane, const char* does, std::uint32_t at,
                                unsigned other) {
  const auto name = [](unsigned one) {
    return one < kLanes ? "lane " + std::to_string(one) : std::string("several lanes");
  };
  throw Fault("a race in warp " + std::to_string(w.number) + ": shared memory from byte " +
              std::to_string(at) + " on is " + does + " by " + name(lane) + " after " +
              name(other) + " touched it, without bar.warp.sync in between");
}

// Chunk: as many bytes as an unsigned number has. Nearly always all of them are nobody's or this
// warp's.
template <class Chunk>
bool is_mine(const std::uint8_t* marks, Chunk mine, Chunk& now) {
  std::memcpy(&now, marks, sizeof now);
  return now == 0 || now == mine;
}

template <class Chunk>
void note_chunk_read(Block& block, std::uint8_t me, std::uint32_t at) {
  const auto mine = static_cast<Chunk>(Chunk(~Chunk{0}) / 255 * me);
  Chunk now;
  if (!is_mine(&block.writers[at], mine, now))
    for (std::uint32_t b = at; b < at + sizeof(Chunk); ++b)
      if (block.writers[b] != 0 && block.writers[b] != me)
        race(me, "reads", b, block.writers[b], "wrote");
  if (is_mine(&block.readers[at], mine, now)) {
    std::memcpy(&block.readers[at], &mine, sizeof mine);
    return;
  }
  for (std::uint32_t b = at; b < at + sizeof(Chunk); ++b)
    block.readers[b] = block.readers[b] == 0 || block.readers[b] == me ? me : Block::kMany;
}

template <class Chunk>
void note_chunk_write(Block& block, std::uint8_t me, std::uint32_t at) {
  const auto mine = static_cast<Chunk>(Chunk(~Chunk{0}) / 255 * me);
  Chunk now;
  if (!is_mine(&block.readers[at], mine, now) || !is_mine(&block.writers[at], mine, now))
    for (std::uint32_t b = at; b < at + sizeof(Chunk); ++b) {
      if (block.writers[b] != 0 && block.writers[b] != me)
        race(me, "writes", b, block.writers[b], "wrote");
      if (block.readers[b] != 0 && block.readers[b] != me)
        race(me, "writes", b, block.readers[b], "read");
    }
  std::memcpy(&block.writers[at], &mine, sizeof mine);
}

}  // namespace

void note_read(Warp& w, unsigned lane, std::uint32_t offset, unsigned bytes) {
  const auto me = static_cast<std::uint8_t>(w.number + 1);
  std::uint32_t at = offset;
  const std::uint32_t end = offset + bytes;
  if (w.block->history != nullptr) {
    w.block->history->read(w, offset, bytes);
    at = end;
  }
  for (; at + 8 <= end; at += 8) note_chunk_read<std::uint64_t>(*w.block, me, at);
  for (; at + 4 <= end; at += 4) note_chunk_read<std::uint32_t>(*w.block, me, at);
  for (; at + 2 <= end; at += 2) note_chunk_read<std::uint16_t>(*w.block, me, at);
  for (; at < end; ++at) note_chunk_read<std::uint8_t>(*w.block, me, at);
  const unsigned other = w.block->lanes->read(w.number, lane, offset, bytes);
  if (other != LaneOrder::kNone) race_of_lanes(w, lane, "read", offset, other);
}

void note_write(Warp& w, unsigned lane, std::uint32_t offset, unsigned bytes) {
  Block& block = *w.block;
  const auto me = static_cast<std::uint8_t>(w.number + 1);
  if (block.history != nullptr) {
    block.history->write(w, offset, bytes);
  } else
    switch (bytes) {
      case 1:
        note_chunk_write<std::uint8_t>(block, me, offset);
        break;
      case 2:
        note_chunk_write<std::uint16_t>(block, me, offset);
        break;
      case 4:
        note_chunk_write<std::uint32_t>(block, me, offset);
        break;
      default:
        for (unsigned b = 0; b < bytes; b += 8)
          note_chunk_write<std::uint64_t>(block, me, offset + b);
    }
  const unsigned other = block.lanes->write(w.number, lane, offset, bytes);
  if (other != LaneOrder::kNone) race_of_lanes(w, lane, "written", offset, other);
  if (!block.unfenced.empty())
    for (unsigned c = offset / 16; c <= (offset + bytes - 1) / 16; ++c) block.unfenced[c] = me;
}

void check_fenced(const Block& block, std::uint32_t offset, unsigned bytes, const char* does) {
  if (block.unfenced.empty()) return;
  for (unsigned c = offset / 16; c <= (offset + bytes - 1) / 16; ++c)
    if (const unsigned writer = block.unfenced[c]; writer != 0)
      throw Fault(std::string(does) + " byte " + std::to_string(std::max(16 * c, offset)) +
                  " of shared memory, which warp " + std::to_string(writer - 1) +
                  " wrote without fence.proxy.async afterwards");
}

Handler find_load(std::string_view space, unsigned bytes, unsigned parts, bool is_signed) {
  if (bytes * parts > 16) return nullptr;
  if (space == "global") return load_from<Space::kGlobal>(bytes, parts, is_signed);
  if (space == "shared" || space == "shared::cta")
    return load_from<Space::kShared>(bytes, parts, is_signed);
  if (space == "shared::cluster") return find_cluster_load(bytes, parts);
  if (space == "param") return load_from<Space::kParameter>(bytes, parts, is_signed);
  return nullptr;
}
Handler find_store(std::string_view space, unsigned bytes, unsigned parts) {
  if (bytes * parts > 16) return nullptr;
  if (space == "global") return store_to<Space::kGlobal>(bytes, parts);
  if (space == "shared" || space == "shared::cta") return store_to<Space::kShared>(bytes, parts);
  if (space == "shared::cluster") return find_cluster_store(bytes, parts);
  return nullptr;
}
Handler copy_async_of(unsigned bytes, char form) {
  if (bytes == 16)
    return form == 'n'   ? copy_async<16, 'n'>
           : form == 's' ? copy_async<16, 's'>
                         : copy_async<16, 'i'>;
  if (bytes == 8)
    return form == 'n' ? copy_async<8, 'n'> : form == 's' ? copy_async<8, 's'> : copy_async<8, 'i'>;
  if (bytes == 4)
    return form == 'n' ? copy_async<4, 'n'> : form == 's' ? copy_async<4, 's'> : copy_async<4, 'i'>;
  return nullptr;
}

}  // namespace ptx
