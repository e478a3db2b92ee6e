// Serializes the header with cereal; no other file includes cereal. Only plain structs are used: no
// pointers, no maps, no polymorphism.
#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <concepts>
#include <cstring>
#include <sstream>

#include "io/checkpoint/checkpoint_format.h"

namespace io::format {
namespace {

struct TensorEntry {
  std::string name;
  std::uint8_t section = 0, type = 0;
  std::vector<std::int64_t> shape;
  std::string device;
  std::uint64_t offset = 0, bytes = 0, digest_low = 0, digest_high = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, section, type, shape, device, offset, bytes, digest_low, digest_high);
  }
};

struct CounterEntry {
  std::string name;
  std::int64_t value = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, value);
  }
};

struct FactEntry {
  std::string name, text;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, text);
  }
};

struct SaveEntry {
  std::int64_t step = 0, unix_seconds = 0, world_size = 0;
  std::string build;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(step, unix_seconds, world_size, build);
  }
};

struct Header {
  std::int64_t global_step = 0, epoch = 0, step_in_epoch = 0, world_size = 0, samples_seen = 0;
  std::uint64_t seed = 0;
  std::string model, dataset, config, build;
  std::vector<CounterEntry> counters;
  std::vector<SaveEntry> history;
  std::vector<TensorEntry> tensors;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(global_step, epoch, step_in_epoch, world_size, samples_seen, seed, model, dataset,
            config, build, counters, history, tensors);
  }
};

// The minimum size of one element in the file; 8 for each length.
template <class T>
constexpr std::size_t kMinBytes = sizeof(T);
template <>
constexpr std::size_t kMinBytes<TensorEntry> = 8 + 1 + 1 + 8 + 8 + 4 * 8;
template <>
constexpr std::size_t kMinBytes<CounterEntry> = 8 + 8;
template <>
constexpr std::size_t kMinBytes<SaveEntry> = 3 * 8 + 8;
template <>
constexpr std::size_t kMinBytes<FactEntry> = 8 + 8;

// Reads the output of PortableBinaryOutputArchive, little-endian, from memory. cereal's own input
// archive resizes a container to any length that the file claims; this one first compares it with
// the remaining bytes.
class BoundedInputArchive
    : public cereal::InputArchive<BoundedInputArchive, cereal::AllowEmptyClassElision> {
 public:
  BoundedInputArchive(std::span<const std::byte> bytes, const std::string& file)
      : cereal::InputArchive<BoundedInputArchive, cereal::AllowEmptyClassElision>(this),
        left_(bytes),
        file_(file) {}

  void read(void* target, std::size_t count) {
    if (count > left_.size()) throw DataError(file_ + ": the header ends in the middle of a value");
    if (count > 0) std::memcpy(target, left_.data(), count);
    left_ = left_.subspan(count);
  }
  // Reads a length, and checks that this many elements of at least `least` bytes can follow.
  std::size_t read_length(std::size_t least) {
    std::uint64_t length = 0;
    read(&length, sizeof length);
    if (length > left_.size() / least)
      throw DataError(file_ + ": the header claims " + std::to_string(length) + " elements where " +
                      std::to_string(left_.size()) + " bytes are left");
    return static_cast<std::size_t>(length);
  }
  std::size_t bytes_left() const { return left_.size(); }

 private:
  std::span<const std::byte> left_;
  const std::string& file_;
};

template <class T>
requires std::is_arithmetic_v<T>
void load(BoundedInputArchive& archive, T& value) { archive.read(&value, sizeof value); }

void load(BoundedInputArchive& archive, std::string& text) {
  text.resize(archive.read_length(1));
  archive.read(text.data(), text.size());
}

template <class T>
void load(BoundedInputArchive& archive, std::vector<T>& items) {
  const std::size_t length = archive.read_length(kMinBytes<T>);
  items.clear();
  for (std::size_t i = 0; i < length; ++i) archive(items.emplace_back());
}

static_assert(std::endian::native == std::endian::little,
              "tensors and header are stored as they lie in memory");

Header header_of(const Checkpoint& c, const std::vector<Placement>& placements) {
  Header header{c.global_step,
                c.epoch,
                c.step_in_epoch,
                c.world_size,
                c.samples_seen,
                c.seed,
                c.model,
                c.dataset,
                c.config,
                c.build,
                {},
                {},
                {}};
  for (const auto& [name, value] : c.counters) header.counters.push_back({name, value});
  for (const SaveRecord& r : c.history)
    header.history.push_back({r.step, r.unix_seconds, r.world_size, r.build});
  for (std::size_t i = 0; i < c.arrays.size(); ++i) {
    const NamedArray& a = c.arrays[i];
    const Placement& p = placements[i];
    header.tensors.push_back({a.name, static_cast<std::uint8_t>(a.section), type_code(a.type),
                              a.shape, a.device, p.offset, p.bytes, p.digest.low, p.digest.high});
  }
  return header;
}

int world_size_of(std::int64_t value, const std::string& file) {
  if (value < 1 || value > 1'000'000)
    throw DataError(file + ": world size " + std::to_string(value) + "; expected 1 to 1000000");
  return static_cast<int>(value);
}

void take_header(Header&& header, const std::string& file, Checkpoint& c,
                 std::vector<Placement>& placements) {
  c.global_step = header.global_step;
  c.epoch = header.epoch;
  c.step_in_epoch = header.step_in_epoch;
  c.world_size = world_size_of(header.world_size, file);
  c.samples_seen = header.samples_seen;
  c.seed = header.seed;
  c.model = std::move(header.model);
  c.dataset = std::move(header.dataset);
  c.config = std::move(header.config);
  c.build = std::move(header.build);
  for (CounterEntry& e : header.counters) c.counters.emplace_back(std::move(e.name), e.value);
  for (SaveEntry& e : header.history)
    c.history.push_back(
        {e.step, e.unix_seconds, world_size_of(e.world_size, file), std::move(e.build)});
  for (TensorEntry& e : header.tensors) {
    if (e.section < 1 || e.section > 6)
      throw DataError(file + ": unknown section " + std::to_string(e.section));
    c.arrays.push_back({std::move(e.name),
                        static_cast<Section>(e.section),
                        type_of_code(e.type, file),
                        std::move(e.shape),
                        std::move(e.device),
                        {}});
    placements.push_back({e.offset,
                          e.bytes,
                          {e.digest_low, e.digest_high},
                          digest_block_bytes(c.arrays.back().shape, e.bytes)});
  }
}

std::vector<std::uint64_t> block_sizes_of(const std::vector<Placement>& placements) {
  std::vector<std::uint64_t> sizes;
  for (const Placement& placement : placements) sizes.push_back(placement.block_bytes);
  return sizes;
}

void take_block_sizes(const std::vector<std::uint64_t>& sizes, const std::string& file,
                      std::vector<Placement>& placements) {
  if (sizes.size() != placements.size())
    throw DataError(file + ": digest blocks of " + std::to_string(sizes.size()) +
                    " arrays; the file has " + std::to_string(placements.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) placements[i].block_bytes = sizes[i];
}

struct Fact {
  const char* name;
  std::string Checkpoint::*text;
};
constexpr Fact kFacts[] = {
    {"run", &Checkpoint::run_id},       {"definition", &Checkpoint::definition},
    {"data", &Checkpoint::data_digest}, {"test", &Checkpoint::test_digest},
    {"samples", &Checkpoint::samples},  {"tokenizer", &Checkpoint::tokenizer}};

// Returns the facts that are set. A reader skips unknown names, so that a later version may add
// some.
std::vector<FactEntry> facts_of(const Checkpoint& checkpoint) {
  std::vector<FactEntry> facts;
  for (const Fact& fact : kFacts)
    if (const std::string& text = checkpoint.*fact.text; !text.empty())
      facts.push_back({fact.name, text});
  return facts;
}

void take_facts(std::vector<FactEntry>&& facts, Checkpoint& checkpoint) {
  for (FactEntry& entry : facts)
    for (const Fact& fact : kFacts)
      if (entry.name == fact.name) checkpoint.*fact.text = std::move(entry.text);
}

}  // namespace

std::vector<std::byte> encode_header(const Checkpoint& checkpoint,
                                     const std::vector<Placement>& placements) {
  std::ostringstream stream(std::ios::binary);
  {
    using Archive = cereal::PortableBinaryOutputArchive;
    Archive archive(stream, Archive::Options::LittleEndian());
    archive(header_of(checkpoint, placements));
    archive(checkpoint.vocabulary, facts_of(checkpoint), block_sizes_of(placements));
  }
  const std::string text = std::move(stream).str();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void decode_header(std::span<const std::byte> bytes, std::uint32_t version, const std::string& file,
                   Checkpoint& checkpoint, std::vector<Placement>& placements) {
  BoundedInputArchive archive(bytes, file);
  std::uint8_t little_endian = 0;
  Header header;
  archive(little_endian);
  if (little_endian != 1) throw DataError(file + ": the header is not little-endian");
  archive(header);
  if (version >= kTextVersion) archive(checkpoint.vocabulary);
  if (version == kTextVersion && checkpoint.vocabulary.empty())
    throw DataError(file + ": version 2, but the vocabulary is empty");
  if (version >= kRunVersion) {
    std::vector<FactEntry> facts;
    archive(facts);
    take_facts(std::move(facts), checkpoint);
  }
  std::vector<std::uint64_t> blocks;
  if (version >= kBlockVersion) archive(blocks);
  if (archive.bytes_left() != 0)
    throw DataError(file + ": " + std::to_string(archive.bytes_left()) +
                    " bytes follow the header's last value");
  take_header(std::move(header), file, checkpoint, placements);
  if (version >= kBlockVersion) take_block_sizes(blocks, file, placements);
  check_header(checkpoint, placements, file);
}

}  // namespace io::format
