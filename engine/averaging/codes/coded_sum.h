// Sums slices of flat buffers over the ranks as lossy codes, with error feedback.
//
// Every rank sends the code of its whole contribution by an all-gather, decodes those of all ranks
// and adds them in rank order, so all ranks get the same bits. ADR 46 compares this with an
// exchange of shares.
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
  // `threads` may be null; else no other work runs on them during sum(). All references must
  // outlive the sum.
  CodedSum(backends::Communicator& communicator, const LossyOptions& options, std::string_view use,
           std::int64_t most, ThreadPool* threads);

  struct Buffers {
    const FlatBuffer& values;              // this rank's contribution, replaced by the sum
    const FlatBuffer& error;               // what earlier rounds did not send
    const FlatBuffer& rest;                // receives what this round does not send; may be `error`
    const FlatBuffer* velocity = nullptr;  // set to zero where an element was sent
  };
  // Sums the elements of `range`. Collective; does not allocate. If it fails, `values` and `rest`
  // are undefined.
  void sum(const Buffers& buffers, Elements range, std::int64_t round);

  std::int64_t bytes_sent() const { return bytes_sent_; }
  const LossyOptions& options() const { return options_; }

 private:
  template <class T, class Code>
  void sum_piece(const Code& code, const Buffers& buffers, Elements piece, std::int64_t round);
  template <class Call>
  void for_blocks(std::int64_t blocks, const Call& call) const;

  backends::Communicator& communicator_;
  const LossyOptions options_;
  const std::uint64_t stream_;
  ThreadPool* threads_;
  std::vector<std::byte> own_, all_;  // codes of one piece
  std::int64_t bytes_sent_ = 0;
};

}  // namespace engine
