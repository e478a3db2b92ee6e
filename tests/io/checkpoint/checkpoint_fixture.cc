// The sample checkpoint, the assembler, and the watch over allocations.
#include "tests/io/checkpoint/checkpoint_fixture.h"

#include <gtest/gtest.h>
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>

#include "tests/support/test_support.h"

namespace {
std::atomic<std::size_t> largest{0};
}

// Not inlined, or GCC takes the pairing of malloc and delete for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
  std::size_t before = largest.load();
  while (size > before && !largest.compare_exchange_weak(before, size)) {
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort asks this one for its buffer; a sanitizer has its own, whose memory the delete
// below must not get.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace checkpoint_fixture {

void reset_largest_allocation() { largest = 0; }
std::size_t largest_allocation() { return largest; }

io::Checkpoint sample_checkpoint(std::int64_t step) {
  io::Checkpoint c;
  c.global_step = step;
  c.epoch = 1;
  c.step_in_epoch = 131;
  c.seed = 0xFEDCBA9876543210u;
  c.world_size = 2;
  c.samples_seen = 76'800;
  c.model = "convnet";
  c.dataset = "mnist";
  c.config = "[run]\nmodel = \"convnet\"\n";
  c.build = "0.1.0 f430773";
  c.counters = {{"averaging.steps_since_sync", 7}, {"trainer.global_batch", -128}};
  c.history = {{469, 1'700'000'000, 1, "0.1.0"}, {step, 1'700'000'060, 2, "0.1.0 f430773"}};
  const auto add = [&](const char* name, io::Section section, base::DType type,
                       std::vector<std::int64_t> shape) {
    std::size_t bytes = base::size_of(type);
    for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
    io::NamedArray array{name, section, type, std::move(shape), "cuda:1", Bytes(bytes)};
    for (std::size_t i = 0; i < bytes; ++i)
      array.data[i] =
          static_cast<std::byte>(i * 7 + c.arrays.size() + static_cast<std::size_t>(step));
    c.arrays.push_back(std::move(array));
  };
  add("conv1.weight", io::Section::kParameter, base::DType::kF32, {4, 1, 3, 3});
  add("bn1.running_mean", io::Section::kBuffer, base::DType::kF64, {4});
  add("bn1.num_batches_tracked", io::Section::kBuffer, base::DType::kI64, {});
  add("conv1.weight", io::Section::kOptimizer, base::DType::kF32,
      {4, 1, 3, 3});  // the same name in another section
  add("empty", io::Section::kAveraging, base::DType::kI32, {3, 0, 2});
  add("half \xc3\xa9", io::Section::kAveraging, base::DType::kBF16, {1, 1, 1, 1, 1, 1, 1, 3});
  add("rank1/rng", io::Section::kRankState, base::DType::kU8, {5});
  return c;
}

void expect_equal(const io::Checkpoint& a, const io::Checkpoint& b) {
  EXPECT_EQ(a.global_step, b.global_step);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.step_in_epoch, b.step_in_epoch);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.world_size, b.world_size);
  EXPECT_EQ(a.samples_seen, b.samples_seen);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.dataset, b.dataset);
  EXPECT_EQ(a.config, b.config);
  EXPECT_EQ(a.build, b.build);
  EXPECT_EQ(a.vocabulary, b.vocabulary);
  EXPECT_EQ(a.run_id, b.run_id);
  EXPECT_EQ(a.definition, b.definition);
  EXPECT_EQ(a.data_digest, b.data_digest);
  EXPECT_EQ(a.tokenizer, b.tokenizer);
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.counters, b.counters);
  ASSERT_EQ(a.history.size(), b.history.size());
  for (std::size_t i = 0; i < a.history.size(); ++i) {
    EXPECT_EQ(a.history[i].step, b.history[i].step);
    EXPECT_EQ(a.history[i].unix_seconds, b.history[i].unix_seconds);
    EXPECT_EQ(a.history[i].world_size, b.history[i].world_size);
    EXPECT_EQ(a.history[i].build, b.history[i].build);
  }
  ASSERT_EQ(a.arrays.size(), b.arrays.size());
  for (std::size_t i = 0; i < a.arrays.size(); ++i) {
    EXPECT_EQ(a.arrays[i].name, b.arrays[i].name);
    EXPECT_EQ(a.arrays[i].section, b.arrays[i].section);
    EXPECT_EQ(a.arrays[i].type, b.arrays[i].type);
    EXPECT_EQ(a.arrays[i].shape, b.arrays[i].shape);
    EXPECT_EQ(a.arrays[i].device, b.arrays[i].device);
    EXPECT_EQ(a.arrays[i].data, b.arrays[i].data) << a.arrays[i].name;
  }
}

Bytes assemble(const Bytes& header, const Bytes& tensors, std::uint32_t version) {
  Bytes file(24);
  std::memcpy(file.data(),
              "\x89"
              "ENGCK\r\n",
              8);
  set(file, 8, version);
  set(file, 12, static_cast<std::uint64_t>(header.size()));
  uLong crc = crc32(0, reinterpret_cast<const Bytef*>(file.data()), 20);
  crc = crc32(crc, reinterpret_cast<const Bytef*>(header.data()), static_cast<uInt>(header.size()));
  set(file, 20, static_cast<std::uint32_t>(crc));
  file.insert(file.end(), header.begin(), header.end());
  while (file.size() % 64 != 0) file.push_back(std::byte{0});
  const XXH128_hash_t head = XXH3_128bits(file.data(), file.size());
  file.insert(file.end(), tensors.begin(), tensors.end());
  const XXH128_hash_t hash = version >= 4 ? head : XXH3_128bits(file.data(), file.size());
  file.resize(file.size() + 24);
  set(file, file.size() - 24, hash.low64);
  set(file, file.size() - 16, hash.high64);
  std::memcpy(file.data() + file.size() - 8,
              "\x89"
              "ENGCK\r\n",
              8);
  return file;
}

Bytes header_of(const Bytes& file) {
  return Bytes(file.begin() + 24,
               file.begin() + 24 + static_cast<std::ptrdiff_t>(get<std::uint64_t>(file, 12)));
}

Bytes tensors_of(const Bytes& file) {
  const std::size_t begin = (24 + get<std::uint64_t>(file, 12) + 63) / 64 * 64;
  return Bytes(file.begin() + static_cast<std::ptrdiff_t>(begin), file.end() - 24);
}

void write_bytes(const std::string& path, const Bytes& bytes) {
  test_support::write_text(path,
                           std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace checkpoint_fixture
