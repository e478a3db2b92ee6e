#include "io/checkpoint/checkpoint_digests.h"

#include <algorithm>

namespace io::format {

Digest digest_by_blocks(std::span<const std::byte> data, std::uint64_t block_bytes) {
  std::vector<Digest> blocks;
  for (; !data.empty(); data = data.subspan(std::min<std::uint64_t>(block_bytes, data.size())))
    blocks.push_back(digest_of(data.first(std::min<std::uint64_t>(block_bytes, data.size()))));
  return digest_of(std::as_bytes(std::span(blocks)));
}

BlockDigests::BlockDigests(const std::vector<Placement>& placements) {
  for (const Placement& placement : placements)
    blocks_.emplace_back(placement.bytes == 0 ? 0
                                              : (placement.bytes - 1) / placement.block_bytes + 1);
}

bool BlockDigests::match(std::size_t array, const Placement& placement) const {
  std::vector<Digest> blocks;
  for (const std::optional<Digest>& block : blocks_[array]) blocks.push_back(block.value());
  return digest_of(std::as_bytes(std::span(blocks))) == placement.digest;
}

void check_whole_file(const ByteSource& file, const Head& head) {
  constexpr std::uint64_t kBlock = 1 << 18;
  std::vector<std::byte> block(kBlock);
  StreamDigest whole;
  const auto add = [&](std::uint64_t begin, std::uint64_t bytes, StreamDigest* part) {
    for (std::uint64_t done = 0; done < bytes; done += kBlock) {
      const auto piece = std::span(block).first(std::min(kBlock, bytes - done));
      file.read(begin + done, piece);
      whole.add(piece);
      if (part) part->add(piece);
    }
  };
  add(0, head.tensors_begin, nullptr);
  for (std::size_t i = 0; i < head.placements.size(); ++i) {
    const Placement& placement = head.placements[i];
    StreamDigest array;
    add(head.tensors_begin + placement.offset, placement.bytes, &array);
    const NamedArray& named = head.checkpoint.arrays[i];
    if (array.value() != placement.digest) fail_array(named.section, named.name, file.name());
  }
  check_trailer(file.bytes(file.size() - kTrailerBytes, kTrailerBytes), whole.value(), file.name());
}

}  // namespace io::format
