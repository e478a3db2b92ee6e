// Opcodes of barriers, copies in bulk and clusters. Unlike others they are taken apart, since their
// modifiers are many; any that is not known here is an error.
#include <algorithm>
#include <initializer_list>
#include <vector>

#include "tests/emulator/ptx/instructions/barriers.h"
#include "tests/emulator/ptx/instructions/bulk_copies.h"
#include "tests/emulator/ptx/instructions/clusters.h"
#include "tests/emulator/ptx/instructions/matrix.h"

namespace ptx {
namespace {

// The modifiers of an opcode, each of which has to be asked for.
class Words {
 public:
  explicit Words(std::string_view opcode) {
    for (std::size_t start = 0; start <= opcode.size();) {
      const std::size_t end = std::min(opcode.find('.', start), opcode.size());
      words_.push_back(opcode.substr(start, end - start));
      start = end + 1;
    }
  }
  // Takes it if it is the next one.
  bool take(std::string_view word) {
    if (words_.empty() || words_.front() != word) return false;
    words_.erase(words_.begin());
    return true;
  }
  bool take_any(std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(), [&](auto word) { return take(word); });
  }
  bool empty() const { return words_.empty(); }
  bool starts(std::initializer_list<std::string_view> words) {
    if (words_.size() < words.size() || !std::equal(words.begin(), words.end(), words_.begin()))
      return false;
    words_.erase(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(words.size()));
    return true;
  }

 private:
  std::vector<std::string_view> words_;
};

AsynchronousForm mbarrier_form(Words& words, std::size_t operands) {
  AsynchronousForm form;
  const auto options = [&](std::initializer_list<std::string_view> spaces) {
    if (words.take("relaxed")) form.option |= kRelaxed;
    words.take_any({"release", "acquire"});
    words.take_any({"cta", "cluster"});
    words.take_any(spaces);
    return words.take("b64");
  };
  if (words.take("pending_count")) {
    form.operands = "w=d";
    if (words.take("b64")) form.run = pending_of_state;
  } else if (words.take("init")) {
    form.operands = "=sw";
    if (options({"shared", "shared::cta"})) form.run = init_mbarrier;
  } else if (words.take("inval")) {
    form.operands = "=s";
    if (options({"shared", "shared::cta"})) form.run = invalidate_mbarrier;
  } else if (words.take("test_wait") || words.take("try_wait")) {
    if (words.take("parity")) form.option |= kByParity;
    form.operands = (form.option & kByParity) != 0 ? "p=sw" : "p=sd";
    if (operands == 4) form.operands += 'w';  // how long it may take, at most
    if (options({"shared", "shared::cta"})) form.run = test_mbarrier;
    form.kind = Kind::kPoll;
  }
  return form;
}

AsynchronousForm arrival_form(Words& words, bool drops, std::size_t operands) {
  AsynchronousForm form;
  if (drops) form.option |= kDrops;
  const bool expects = words.take("expect_tx");
  if (words.take("noComplete")) form.option |= kNoComplete;
  if (words.take("relaxed")) form.option |= kRelaxed;
  words.take("release");
  words.take_any({"cta", "cluster"});
  words.take_any({"shared", "shared::cta", "shared::cluster"});
  if (!words.take("b64")) return form;
  form.operands = operands == 2 ? "d=s" : "d=sw";
  if (expects && operands == 3)
    form.run = arrive_mbarrier<'x'>;
  else if (!expects)
    form.run = operands == 2 ? arrive_mbarrier<'n'> : arrive_mbarrier<'c'>;
  return form;
}

template <int kSign>
AsynchronousForm bytes_form(Words& words) {
  AsynchronousForm form;
  words.take("relaxed");
  words.take_any({"cta", "cluster"});
  words.take_any({"shared", "shared::cta", "shared::cluster"});
  if (!words.take("b64")) return form;
  form.operands = "=sw";
  form.run = count_bytes<kSign>;
  return form;
}

// What may come behind the destination of a copy to shared memory.
void trailing(Words& words, AsynchronousForm& form) {
  if (words.take("multicast::cluster")) {
    form.option |= kMulticast;
    form.operands += 'h';
  }
  if (words.take("L2::cache_hint")) form.operands += 'd';
}

std::int32_t sum_of_type(Words& words) {
  if (words.take("f32")) return 1;
  if (words.take_any({"u32", "s32"})) return 2;
  if (words.take("u64")) return 3;
  return 0;
}

AsynchronousForm bulk_form(Words& words, bool sums) {
  AsynchronousForm form;
  const bool to_shared = words.take_any({"shared::cluster", "shared::cta"});
  if (to_shared && !sums) {
    const bool from_global = words.take("global");
    if (!from_global && !words.take("shared::cta")) return form;
    if (!words.take("mbarrier::complete_tx::bytes")) return form;
    form.operands = from_global ? "=sgws" : "=ssws";
    form.run = from_global ? bulk_to_shared : bulk_between_blocks;
    trailing(words, form);
  } else if (words.starts({"global", "shared::cta", "bulk_group"})) {
    form.operands = "=gsw";
    form.run = bulk_to_global;
    trailing(words, form);
    if (sums) {
      form.option = words.take("add") ? sum_of_type(words) << kSumShift : 0;
      if (form.option == 0) form.run = nullptr;
    }
  }
  return form;
}

AsynchronousForm tensor_form(Words& words, bool sums) {
  AsynchronousForm form;
  static constexpr std::string_view kRanks[] = {"1d", "2d", "3d", "4d", "5d"};
  unsigned rank = 0;
  for (unsigned r = 1; r <= 5; ++r)
    if (words.take(kRanks[r - 1])) rank = r;
  if (rank == 0) return form;
  form.option = static_cast<std::int32_t>(rank);
  const std::string place(rank, 'w');
  if (!sums &&
      (words.starts({"shared::cluster", "global"}) || words.starts({"shared::cta", "global"}))) {
    words.take("tile");
    if (!words.take("mbarrier::complete_tx::bytes")) return form;
    form.operands = "=sg" + place + "s";
    form.run = tensor_to_shared;
    trailing(words, form);
  } else if (words.starts({"global", "shared::cta"})) {
    if (sums) {
      if (!words.take("add")) return form;
      form.option |= 1 << kSumShift;
    }
    words.take("tile");
    if (!words.take("bulk_group")) return form;
    form.operands = "=g" + place + "s";
    form.run = tensor_to_global;
    trailing(words, form);
  }
  return form;
}

AsynchronousForm copy_form(Words& words) {
  AsynchronousForm form;
  if (words.starts({"async", "bulk", "commit_group"})) {
    form.run = commit_bulk;
    form.operands = "=";
  } else if (words.starts({"async", "bulk", "wait_group"})) {
    form.run = words.take("read") ? wait_bulk<true> : wait_bulk<false>;
    form.operands = "=n";
  } else if (words.starts({"async", "bulk", "tensor"})) {
    return tensor_form(words, false);
  } else if (words.starts({"async", "bulk"})) {
    return bulk_form(words, false);
  } else if (words.starts({"reduce", "async", "bulk", "tensor"})) {
    return tensor_form(words, true);
  } else if (words.starts({"reduce", "async", "bulk"})) {
    return bulk_form(words, true);
  }
  return form;
}

AsynchronousForm barrier_form(Words& words, std::size_t operands) {
  AsynchronousForm form;
  form.kind = Kind::kBarrier;
  if (words.take("cluster")) {
    const bool arrives = words.take("arrive"), waits = !arrives && words.take("wait");
    const bool relaxed = arrives && words.take("relaxed");
    words.take_any({"release", "acquire"});
    words.take("aligned");
    form.operands = "=";
    form.run = waits     ? wait_cluster
               : relaxed ? arrive_cluster<true>
               : arrives ? arrive_cluster<false>
                         : nullptr;
    return form;
  }
  words.take("cta");
  const bool waits = words.take("sync");
  if (!waits && !words.take("arrive")) return form;
  words.take("aligned");
  form.operands = operands == 2 ? "=ww" : "=w";
  if (waits)
    form.run = operands == 2 ? named_barrier<true, true> : named_barrier<true, false>;
  else if (operands == 2)
    form.run = named_barrier<false, true>;
  form.needs_history = operands == 2;
  return form;
}

AsynchronousForm fence_form(Words& words) {
  AsynchronousForm form;
  form.operands = "=";
  if (words.starts({"mbarrier_init", "release", "cluster"})) {
    form.run = fence_mbarrier_init;
  } else if (words.starts({"proxy", "async"})) {
    words.take_any({"shared::cta", "shared::cluster"});
    form.run = fence_proxy;
    form.needs_history = false;
  }
  return form;
}

AsynchronousForm form_of(Words& words, std::size_t operands) {
  AsynchronousForm form;
  if (words.take("mbarrier")) {
    if (words.take("arrive")) return arrival_form(words, false, operands);
    if (words.take("arrive_drop")) return arrival_form(words, true, operands);
    if (words.take("expect_tx")) return bytes_form<1>(words);
    if (words.take("complete_tx")) return bytes_form<-1>(words);
    return mbarrier_form(words, operands);
  }
  if (words.take("cp")) return copy_form(words);
  if (words.take_any({"bar", "barrier"})) return barrier_form(words, operands);
  if (words.take("fence")) return fence_form(words);
  if (words.starts({"mapa", "shared::cluster", "u32"})) return {map_address, "w=ww"};
  if (words.starts({"elect", "sync"})) return {elect, "wp=m", Kind::kMemberMask, 0, false};
  if (words.starts({"setmaxnreg", "inc", "sync", "aligned", "u32"}))
    return {set_registers<true>, "=n", Kind::kWholeWarp};
  if (words.starts({"setmaxnreg", "dec", "sync", "aligned", "u32"}))
    return {set_registers<false>, "=n", Kind::kWholeWarp};
  if (words.starts({"nanosleep", "u32"})) return {yield_warp, "=w", Kind::kPoll, 0, false};
  if (words.starts({"prefetch", "tensormap"}))
    return {[](Warp&, const Instruction&) {}, "=g", Kind::kPlain, 0, false};
  return form;
}

}  // namespace

AsynchronousForm find_asynchronous_form(std::string_view opcode, std::size_t operands) {
  Words words(opcode);
  AsynchronousForm form = form_of(words, operands);
  if (!words.empty()) form.run = nullptr;
  return form;
}

}  // namespace ptx
