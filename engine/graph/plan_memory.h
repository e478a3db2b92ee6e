// Lays out a plan's tensors, gradients and saved values in its arena.
#pragma once

#include <vector>

#include "engine/graph/memory/memory_layout.h"
#include "engine/graph/memory/recomputation.h"
#include "engine/graph/plan.h"

namespace engine {

class PlanMemory {
 public:
  // `has_gradient`: for each tensor. REQUIRES: the plan's steps are complete but for what place()
  // sets. The plan must outlive this.
  PlanMemory(Plan& plan, std::vector<bool> has_gradient);

  // Sets offsets, the arena's size, what repeats and `recomputation`. May be called again.
  void place(const std::vector<PlanSegment>& segments);
  // The steps that a segment may contain, after place() without segments: those before the first
  // one that gives the logits or the loss, or saves its values in place of others.
  std::vector<StepCost> step_costs() const;
  // The operations of a sample's forward through the steps that repeat, and through all: those of
  // products, and some for each element.
  double repeated_flops() const;
  double forward_flops() const;

 private:
  static constexpr int kNone = -1;

  int step_count() const { return static_cast<int>(plan_.steps.size()); }
  PlanTensor& tensor(int i) { return plan_.tensors[static_cast<std::size_t>(i)]; }
  const PlanTensor& tensor(int i) const { return plan_.tensors[static_cast<std::size_t>(i)]; }
  PlanStep& step(int i) { return plan_.steps[static_cast<std::size_t>(i)]; }
  const PlanStep& step(int i) const { return plan_.steps[static_cast<std::size_t>(i)]; }
  MemoryBlock& block(int i) { return blocks_[static_cast<std::size_t>(i)]; }
  int root(int i) const { return tensor(i).root; }
  static int at(const std::vector<int>& numbers, int i) {
    return numbers[static_cast<std::size_t>(i)];
  }
  static int& at(std::vector<int>& numbers, int i) { return numbers[static_cast<std::size_t>(i)]; }
  bool has_gradient(int i) const { return has_gradient_[static_cast<std::size_t>(i)]; }
  bool is_kept(int r) const { return kept_[static_cast<std::size_t>(r)]; }

  bool is_input(int i) const;
  bool bound_at_run_time(int i) const;
  std::size_t bytes(int i) const;
  double flops(int step) const;

  void set_segments(const std::vector<PlanSegment>& segments);
  void find_kept();
  void find_repeats();
  void set_times();
  void find_last_reads();
  void place_values(int i);
  bool runs_in_place(int i) const;
  int place_saved(int i);
  void place_gradient(int i, int saved_block);
  bool writes_gradient_of_first(const PlanStep& s) const;
  int new_block(std::size_t size, int first, int last);
  void add_period(int block, int first, int last);
  std::size_t offset_of(int block) const;
  void set_offsets(const std::vector<int>& saved_block);
  void describe(const std::vector<PlanSegment>& segments);

  Plan& plan_;
  const std::vector<bool> has_gradient_;
  std::vector<int> producer_;                     // for each tensor, the step that computes it
  std::vector<int> segment_;                      // for each step
  std::vector<bool> kept_;                        // for each root tensor: computed once
  std::vector<int> backward_time_, repeat_time_;  // for each step
  int end_time_ = 0;                              // after everything
  // For each root tensor, the last read in forward, and of all; kNone: never.
  std::vector<int> forward_read_, last_read_;
  std::vector<MemoryBlock> blocks_;
  std::vector<int> value_block_, gradient_block_;  // for each root tensor
};

}  // namespace engine
