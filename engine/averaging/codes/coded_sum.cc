// Sums pieces of limited size, so that the memory for the codes of all ranks is limited, too.
#include "engine/averaging/codes/coded_sum.h"

#include <cmath>

#include "engine/core/random.h"

namespace engine {
namespace {

constexpr std::int64_t kPiece = std::int64_t{4} << 20;  // elements, whole blocks of both codes
constexpr int kNoiseOfSums = -1;                        // no rank has this number

template <class T>
std::span<T> slice(const FlatBuffer& buffer, std::int64_t first, std::int64_t count) {
  return buffer.span<T>().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

template <class Code>
std::int64_t blocks_of(std::int64_t count) {
  return (count + Code::kBlock - 1) / Code::kBlock;
}

// Returns the blocks of each rank's share; 0 if whole codes are received in fewer bytes. A rank
// receives 2 (n - 1) codes of a share, or n - 1 whole ones. A sparse sum has more elements than a
// code can hold.
template <class Code>
std::int64_t share_of(std::int64_t blocks, int ranks) {
  const std::int64_t share = (blocks + ranks - 1) / ranks;
  return Code::kHoldsSums && 2 * share < blocks ? share : 0;
}

// Returns the bytes that a rank sends to each other one in an exchange.
template <class Code>
std::size_t bytes_to_each(const Code& code, std::int64_t count, int ranks) {
  const std::int64_t share = share_of<Code>(blocks_of<Code>(count), ranks);
  return share > 0 ? static_cast<std::size_t>(share) * code.block_bytes(Code::kBlock)
                   : code_bytes(code, count);
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

// A piece of one call, in blocks.
struct CodedSum::Piece {
  Elements range;
  std::int64_t round;
  ThreadPool* threads;
  std::int64_t block, blocks;  // elements of a block; number of blocks
  std::int64_t share;          // blocks of each rank's share; 0: whole codes
  std::size_t step, bytes;     // bytes of a block's code, and of the whole code

  template <class T>
  std::span<T> part(const FlatBuffer& buffer, std::int64_t number) const {
    const std::int64_t first = number * block;
    return slice<T>(buffer, range.first + first, std::min(block, range.count - first));
  }
  std::int64_t position(std::int64_t number) const { return range.first + number * block; }
  // The place of a block among the codes of all blocks.
  std::size_t at(std::int64_t number) const { return static_cast<std::size_t>(number) * step; }
};

CodedSum::CodedSum(backends::Communicator& communicator, const LossyOptions& options,
                   std::string_view use, std::int64_t most)
    : communicator_(communicator), options_(options), stream_(stream_key(options.seed, use)) {
  const int ranks = communicator.world_size();
  // The first round has the largest code. Three or more ranks send up to 4 blocks as whole codes,
  // which may be more bytes than the shares of more blocks.
  std::visit(
      [&]<class Code>(const Code& code) {
        const std::int64_t largest = std::min(most, kPiece);
        const std::size_t each =
            std::max(bytes_to_each(code, largest, ranks),
                     code_bytes(code, std::min<std::int64_t>(largest, 4 * Code::kBlock)));
        all_.resize(each * static_cast<std::size_t>(ranks));
        own_.resize(std::max(code_bytes(code, largest), all_.size()));
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
  const std::int64_t first = std::min(communicator_.rank() * piece.share, piece.blocks),
                     end = std::min(first + piece.share, piece.blocks);
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
        for (std::int64_t done = 0; done < range.count; done += kPiece) {
          const std::int64_t count = std::min(kPiece, range.count - done),
                             blocks = blocks_of<Code>(count);
          const Piece piece{.range = {range.first + done, count},
                            .round = round,
                            .threads = threads,
                            .block = Code::kBlock,
                            .blocks = blocks,
                            .share = share_of<Code>(blocks, communicator_.world_size()),
                            .step = code.block_bytes(Code::kBlock),
                            .bytes = code_bytes(code, count)};
          if (buffers.values.dtype() == DType::kF32)
            sum_piece<float>(code, buffers, piece);
          else
            sum_piece<double>(code, buffers, piece);
        }
      },
      code_of_all);
}

std::int64_t coded_bytes_received(const LossyOptions& options, std::int64_t count, int ranks,
                                  std::int64_t round) {
  std::int64_t bytes = 0;
  std::visit(
      [&]<class Code>(const Code& code) {
        for (std::int64_t done = 0; done < count; done += kPiece) {
          const std::int64_t piece = std::min(kPiece, count - done);
          const std::int64_t exchanges = share_of<Code>(blocks_of<Code>(piece), ranks) > 0 ? 2 : 1;
          bytes += exchanges * (ranks - 1) *
                   static_cast<std::int64_t>(bytes_to_each(code, piece, ranks));
        }
      },
      code_of_round(options, round));
  return bytes;
}

}  // namespace engine
