// Broadcasts the file block by block, each with a byte that states if rank 0 could read it.
#include "engine/train/saving/shared_file.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace engine {
namespace {

constexpr std::uint64_t kBlockBytes = 1 << 20;
constexpr std::size_t kStatus = 64;  // bytes before the content, which keep it aligned

}  // namespace

SharedFile::SharedFile(backends::Communicator& communicator, std::unique_ptr<io::ByteSource> file,
                       const std::string& name)
    : ByteSource(name), communicator_(communicator), file_(std::move(file)) {
  if (file_) size_ = file_->size();
  if (communicator_.world_size() > 1) communicator_.broadcast(&size_, sizeof size_, 0);
}

void SharedFile::read(std::uint64_t offset, std::span<std::byte> target) const {
  if (communicator_.world_size() == 1) return file_->read(offset, target);
  while (!target.empty()) {
    if (offset >= size_) throw io::DataError(name() + ": became shorter while it was read");
    if (index_ != offset / kBlockBytes) fetch(offset / kBlockBytes);
    const std::uint64_t begin = offset % kBlockBytes,
                        count =
                            std::min<std::uint64_t>(target.size(), block_.size() - kStatus - begin);
    std::memcpy(target.data(), block_.data() + kStatus + begin, count);
    offset += count;
    target = target.subspan(count);
  }
}

void SharedFile::fetch(std::uint64_t index) const {
  const std::uint64_t begin = index * kBlockBytes;
  block_.resize(kStatus + std::min(kBlockBytes, size_ - begin));
  index_ = ~std::uint64_t{0};
  std::exception_ptr failure;
  if (file_) {
    try {
      file_->read(begin, std::span(block_).subspan(kStatus));
    } catch (...) {
      failure = std::current_exception();
    }
    block_.front() = std::byte{failure == nullptr};
  }
  communicator_.broadcast(block_.data(), block_.size(), 0);
  if (failure) std::rethrow_exception(failure);
  if (block_.front() == std::byte{0}) throw io::Error(name() + ": rank 0 could not read it");
  index_ = index;
}

}  // namespace engine
