// A file that only rank 0 opens, and all ranks read together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "io/checkpoint/byte_source.h"

namespace engine {

// Each rank makes the same calls of read(), from one thread: a parser that decides by the content
// alone does. Blocks of 1 MiB travel, so that no rank needs memory for the whole file. In a world
// of one it is the file.
class SharedFile final : public io::ByteSource {
 public:
  // Collective. `file` is rank 0's; the others have none.
  SharedFile(backends::Communicator& communicator, std::unique_ptr<io::ByteSource> file,
             const std::string& name);

  std::uint64_t size() const override { return size_; }
  bool many_readers() const override { return communicator_.world_size() == 1; }
  // Collective. What rank 0 cannot read, no rank has read: rank 0 throws what the file has thrown,
  // the others io::Error. Throws what the communicator throws, too.
  void read(std::uint64_t offset, std::span<std::byte> target) const override;

 private:
  void fetch(std::uint64_t index) const;

  backends::Communicator& communicator_;
  std::unique_ptr<io::ByteSource> file_;
  std::uint64_t size_ = 0;
  mutable std::vector<std::byte>
      block_;  // one byte that says whether it could be read, and content
  mutable std::uint64_t index_ = ~std::uint64_t{0};  // of the block that is there
};

}  // namespace engine
