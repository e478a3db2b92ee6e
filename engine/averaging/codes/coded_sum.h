// Sums slices of flat buffers over the ranks as lossy codes, with error feedback.
//
// Two ways, chosen by the bytes that a rank receives; all ranks get the same bits from both:
//  - whole codes: an all-gather sends the code of each rank's whole contribution to all, which add
//    them in rank order;
//  - shares (ADR 55), for quantized codes: every rank has a share of the blocks. It receives the
//    codes of its share by an all-to-all, adds them in rank order and encodes the sum. An
//    all-gather sends the codes of the sums to all.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backends/communicator.h"
#include "engine/averaging/codes/lossy_code.h"
#include "engine/core/parameter_buffer.h"
#include "engine/core/thread_pool.h"
#include "engine/optim/optimizer_shards.h"

namespace engine {

class CodedSum {
 public:
  // `use` names the stream of random numbers. `most` is the largest number of elements of a call.
  // The communicator must outlive the sum.
  CodedSum(backends::Communicator& communicator, const LossyOptions& options, std::string_view use,
           std::int64_t most);

  struct Buffers {
    const FlatBuffer& values;              // this rank's contribution, replaced by the sum
    const FlatBuffer& error;               // what earlier rounds did not send
    const FlatBuffer& rest;                // receives what this round does not send; may be `error`
    const FlatBuffer* velocity = nullptr;  // set to zero where an element was sent
  };
  // Sums the elements of `range`. With shares, `rest` also receives what the code of the sum of
  // this rank's share drops. `threads` may be null; else no other work runs on them during the
  // call. Collective; does not allocate. If it fails, `values` and `rest` are undefined.
  void sum(const Buffers& buffers, Elements range, std::int64_t round, ThreadPool* threads);

  const LossyOptions& options() const { return options_; }

 private:
  struct Piece;
  template <class T, class Code>
  void sum_piece(const Code& code, const Buffers& buffers, const Piece& piece);
  template <class T, class Code>
  void add_contributions(const Code& code, const Buffers& buffers, const Piece& piece);
  template <class T, class Code>
  void encode_share(const Code& code, const Buffers& buffers, const Piece& piece);

  backends::Communicator& communicator_;
  const LossyOptions options_;
  const std::uint64_t stream_;
  std::vector<std::byte> own_, all_;  // codes of one piece
};

// Returns the bytes that each rank receives in a sum of `count` elements over `ranks` ranks.
std::int64_t coded_bytes_received(const LossyOptions& options, std::int64_t count, int ranks,
                                  std::int64_t round);

}  // namespace engine
