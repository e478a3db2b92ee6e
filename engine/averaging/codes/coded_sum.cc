// Sums the pieces in host memory.
#include "engine/averaging/codes/coded_sum.h"

#include <cmath>

#include "engine/averaging/codes/coded_pieces.h"
#include "engine/core/random.h"

namespace engine {
namespace {

template <class T>
std::span<T> slice(const FlatBuffer& buffer, std::int64_t first, std::int64_t count) {
  return buffer.span<T>().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

template <class Call>
void for_blocks(ThreadPool* threads, std::int64_t begin, std::int64_t end, const Call& call) {
  const auto run = [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t block = begin + first; block < begin + last; ++block) call(block);
  };
  if (threads == nullptr)
    run(0, end - begin, 0);
  else
    threads->run(end - begin, run);
}

// Subtracts what the code holds from `values`, which become what it dropped.
template <class T, class Code>
void keep_dropped(const Code& code, const std::byte* from, std::span<T> values) {
  code.add(from, T(-1), values);
  for (T& value : values)
    if (!std::isfinite(value)) value = 0;  // it was sent: a later round cannot repair it
}

}  // namespace

// A piece of one call.
struct CodedSum::Piece : CodedPiece {
  std::int64_t round;
  ThreadPool* threads;

  template <class T>
  std::span<T> part(const FlatBuffer& buffer, std::int64_t number) const {
    const std::int64_t first = number * block;
    return slice<T>(buffer, range.first + first, std::min(block, range.count - first));
  }
};

CodedSum::CodedSum(backends::Communicator& communicator, const LossyOptions& options,
                   std::string_view use, std::int64_t most)
    : communicator_(communicator), options_(options), stream_(stream_key(options.seed, use)) {
  const int ranks = communicator.world_size();
  std::visit(  // the first round has the largest code
      [&]<class Code>(const Code& code) {
        all_.resize(coded_bytes_of_all(code, most, ranks));
        own_.resize(std::max(code_bytes(code, std::min(most, kCodedPiece)), all_.size()));
      },
      code_of_round(options, 0));
}

template <class T, class Code>
void CodedSum::sum_piece(const Code& code, const Buffers& buffers, const Piece& piece) {
  const RoundingNoise noise(stream_, communicator_.rank(), piece.round);
  for_blocks(piece.threads, 0, piece.blocks, [&](std::int64_t block) {
    const std::span<T> owed = piece.part<T>(buffers.values, block),
                       error = piece.part<T>(buffers.error, block);
    for (std::size_t i = 0; i < owed.size(); ++i)
      owed[i] += static_cast<T>(options_.decay) * error[i];
    code.encode(std::span<const T>(owed), noise, piece.position(block),
                own_.data() + piece.at(block));
  });
  if (piece.share > 0)
    communicator_.all_to_all(own_.data(), piece.at(piece.share), all_.data());
  else
    communicator_.all_gather(own_.data(), piece.bytes, all_.data());
  for_blocks(piece.threads, 0, piece.blocks, [&](std::int64_t block) {
    const std::byte* sent = own_.data() + piece.at(block);
    const std::span<T> values = piece.part<T>(buffers.values, block),
                       rest = piece.part<T>(buffers.rest, block);
    std::copy(values.begin(), values.end(), rest.begin());
    keep_dropped(code, sent, rest);
    if (buffers.velocity != nullptr) code.clear_sent(sent, piece.part<T>(*buffers.velocity, block));
  });
  if (piece.share == 0) return add_contributions<T>(code, buffers, piece);
  encode_share<T>(code, buffers, piece);
  communicator_.all_gather(own_.data(), piece.at(piece.share), all_.data());
  for_blocks(piece.threads, 0, piece.blocks, [&](std::int64_t block) {
    const std::span<T> values = piece.part<T>(buffers.values, block);
    std::fill(values.begin(), values.end(), T(0));
    code.add(all_.data() + piece.at(block), T(1), values);
  });
}

// Decodes the whole codes of all ranks.
template <class T, class Code>
void CodedSum::add_contributions(const Code& code, const Buffers& buffers, const Piece& piece) {
  const auto of_rank = [&](int rank) {
    return all_.data() + static_cast<std::size_t>(rank) * piece.bytes;
  };
  const std::int64_t last = piece.blocks - 1;
  for (int rank = 0; rank < communicator_.world_size(); ++rank)
    code.check(of_rank(rank) + piece.at(last), piece.range.count - last * Code::kBlock);
  for_blocks(piece.threads, 0, piece.blocks, [&](std::int64_t block) {
    const std::span<T> values = piece.part<T>(buffers.values, block);
    std::fill(values.begin(), values.end(), T(0));
    for (int rank = 0; rank < communicator_.world_size(); ++rank)
      code.add(of_rank(rank) + piece.at(block), T(1), values);
  });
}

// Sums this rank's share and encodes the sum at the start of own_. What that code drops is added to
// what this rank sends next, so that nothing is lost.
template <class T, class Code>
void CodedSum::encode_share(const Code& code, const Buffers& buffers, const Piece& piece) {
  const RoundingNoise noise(stream_, kNoiseOfSums, piece.round);
  const std::int64_t first = piece.first_of(communicator_.rank()),
                     end = piece.end_of(communicator_.rank());
  for_blocks(piece.threads, first, end, [&](std::int64_t block) {
    const std::span<T> sum = piece.part<T>(buffers.values, block),
                       rest = piece.part<T>(buffers.rest, block);
    std::fill(sum.begin(), sum.end(), T(0));
    for (int rank = 0; rank < communicator_.world_size(); ++rank)
      code.add(all_.data() + piece.at(rank * piece.share + block - first), T(1), sum);
    std::byte* coded = own_.data() + piece.at(block - first);
    code.encode(std::span<const T>(sum), noise, piece.position(block), coded);
    keep_dropped(code, coded, sum);
    for (std::size_t i = 0; i < rest.size(); ++i) rest[i] += sum[i];
  });
}

void CodedSum::sum(const Buffers& buffers, Elements range, std::int64_t round,
                   ThreadPool* threads) {
  const LossyCode code_of_all = code_of_round(options_, round);
  std::visit(
      [&]<class Code>(const Code& code) {
        for_coded_pieces(code, range, communicator_.world_size(), [&](const CodedPiece& cut) {
          const Piece piece{cut, round, threads};
          if (buffers.values.dtype() == DType::kF32)
            sum_piece<float>(code, buffers, piece);
          else
            sum_piece<double>(code, buffers, piece);
        });
      },
      code_of_all);
}

std::int64_t coded_bytes_received(const LossyOptions& options, std::int64_t count, int ranks,
                                  std::int64_t round) {
  std::int64_t bytes = 0;
  std::visit(
      [&]<class Code>(const Code& code) {
        for_coded_pieces(code, {0, count}, ranks, [&](const CodedPiece& piece) {
          bytes += (piece.share > 0 ? 2 : 1) * (ranks - 1) *
                   static_cast<std::int64_t>(coded_bytes_to_each(code, piece.range.count, ranks));
        });
      },
      code_of_round(options, round));
  return bytes;
}

}  // namespace engine
