// A file that only rank 0 opens, and that all ranks read together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "io/checkpoint/byte_source.h"

namespace engine {

// Each rank must make the same calls of read(), from one thread, as a parser does whose decisions
// depend only on the content. Blocks of 1 MiB are broadcast, so that no rank needs memory for the
// whole file. In a world of one, the file is read directly.
class SharedFile final : public io::ByteSource {
 public:
  // Collective. `file` is rank 0's; the others pass none.
  SharedFile(backends::Communicator& communicator, std::unique_ptr<io::ByteSource> file,
             const std::string& name);

  std::uint64_t size() const override { return size_; }
  bool many_readers() const override { return communicator_.world_size() == 1; }
  // Collective. If rank 0 cannot read, no rank has read: rank 0 rethrows the file's exception, the
  // others throw io::Error. Also throws the communicator's exceptions.
  void read(std::uint64_t offset, std::span<std::byte> target) const override;

 private:
  void fetch(std::uint64_t index) const;

  backends::Communicator& communicator_;
  std::unique_ptr<io::ByteSource> file_;
  std::uint64_t size_ = 0;
  mutable std::vector<std::byte>
      block_;  // one byte that states if it could be read, then the content
  mutable std::uint64_t index_ = ~std::uint64_t{0};  // index of the current block
};

}  // namespace engine
