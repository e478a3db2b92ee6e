// Sums pieces of limited size, so that the memory for the codes of all ranks is limited, too.
#include "engine/averaging/codes/coded_sum.h"

#include <cmath>

#include "engine/core/random.h"

namespace engine {
namespace {

constexpr std::int64_t kPiece = std::int64_t{4} << 20;  // elements, whole blocks of both codes

template <class T>
std::span<T> slice(const FlatBuffer& buffer, std::int64_t first, std::int64_t count) {
  return buffer.span<T>().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace

CodedSum::CodedSum(backends::Communicator& communicator, const LossyOptions& options,
                   std::string_view use, std::int64_t most, ThreadPool* threads)
    : communicator_(communicator),
      options_(options),
      stream_(stream_key(options.seed, use)),
      threads_(threads) {
  // The first round has the largest code.
  own_.resize(code_bytes(options, std::min(most, kPiece), 0));
  all_.resize(own_.size() * static_cast<std::size_t>(communicator.world_size()));
}

template <class Call>
void CodedSum::for_blocks(std::int64_t blocks, const Call& call) const {
  const auto run = [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t block = first; block < last; ++block) call(block);
  };
  if (threads_ == nullptr)
    run(0, blocks, 0);
  else
    threads_->run(blocks, run);
}

template <class T, class Code>
void CodedSum::sum_piece(const Code& code, const Buffers& buffers, Elements piece,
                         std::int64_t round) {
  const std::size_t bytes = code_bytes(code, piece.count), step = code.block_bytes(Code::kBlock);
  const std::int64_t blocks = (piece.count + Code::kBlock - 1) / Code::kBlock;
  const RoundingNoise noise(stream_, communicator_.rank(), round);
  const auto part = [&](const FlatBuffer& buffer, std::int64_t block) {
    const std::int64_t first = block * Code::kBlock;
    return slice<T>(buffer, piece.first + first, std::min(Code::kBlock, piece.count - first));
  };
  for_blocks(blocks, [&](std::int64_t block) {
    const std::span<T> owed = part(buffers.values, block), error = part(buffers.error, block);
    for (std::size_t i = 0; i < owed.size(); ++i)
      owed[i] += static_cast<T>(options_.decay) * error[i];
    code.encode(std::span<const T>(owed), noise, piece.first + block * Code::kBlock,
                own_.data() + static_cast<std::size_t>(block) * step);
  });
  communicator_.all_gather(own_.data(), bytes, all_.data());
  bytes_sent_ += static_cast<std::int64_t>(bytes);
  const std::int64_t last = (blocks - 1) * Code::kBlock;
  for (int rank = 0; rank < communicator_.world_size(); ++rank)
    code.check(all_.data() + static_cast<std::size_t>(rank) * bytes +
                   static_cast<std::size_t>(blocks - 1) * step,
               piece.count - last);
  for_blocks(blocks, [&](std::int64_t block) {
    const std::size_t at = static_cast<std::size_t>(block) * step;
    const std::span<T> values = part(buffers.values, block), rest = part(buffers.rest, block);
    std::copy(values.begin(), values.end(), rest.begin());
    code.add(own_.data() + at, T(-1), rest);
    for (T& value : rest)
      if (!std::isfinite(value)) value = 0;  // it was sent: a later round cannot repair it
    if (buffers.velocity != nullptr)
      code.clear_sent(own_.data() + at, part(*buffers.velocity, block));
    std::fill(values.begin(), values.end(), T(0));
    for (int rank = 0; rank < communicator_.world_size(); ++rank)
      code.add(all_.data() + static_cast<std::size_t>(rank) * bytes + at, T(1), values);
  });
}

void CodedSum::sum(const Buffers& buffers, Elements range, std::int64_t round) {
  const LossyCode code_of_all = code_of_round(options_, round);
  std::visit(
      [&](const auto& code) {
        for (std::int64_t done = 0; done < range.count; done += kPiece) {
          const Elements piece{range.first + done, std::min(kPiece, range.count - done)};
          if (buffers.values.dtype() == DType::kF32)
            sum_piece<float>(code, buffers, piece, round);
          else
            sum_piece<double>(code, buffers, piece, round);
        }
      },
      code_of_all);
}

}  // namespace engine
