// Sums whose rounding depends only on the order of the parts, not on the number of ranks.
//
// Floating-point addition is not associative: (a + b) + (c + d) and ((a + b) + c) + d may differ in
// the last bit. The tree fixes the parentheses once for all parts. Eight parts are always
// ((0+1)+(2+3))+((4+5)+(6+7)). If three ranks hold them, the second rank has the parts 2, 3 and 4.
// It reduces 2+3, which is a node of the tree, and keeps 4 separately. Every rank then combines the
// nodes of all ranks in the order of the tree. Hence any number of ranks gets the same bits (ADR
// 12).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/dtype.h"

namespace engine {

// Combines parts 0 .. count-1 in place as ((0+1)+(2+3))+((4+5)+...): calls combine(into, from) for
// each pair; the result is in part 0. Reducing runs of 2^k parts first and then their results gives
// the same tree.
template <class Combine>
void reduce_tree(std::size_t count, Combine combine) {
  for (std::size_t stride = 1; stride < count; stride *= 2)
    for (std::size_t i = 0; i + stride < count; i += 2 * stride) combine(i, i + stride);
}

// A block of moments has the number of rows, then a mean per channel, then a sum of squared
// differences from it per channel. `into` becomes the block of both sets of rows. Source: Chan,
// Golub and LeVeque, 1979 (pairwise merging of variances).
void merge_moments(std::span<double> into, std::span<const double> from);

// Adds `count` elements at `from` to those at `into`. f32 or f64.
void add_elements(DType dtype, void* into, const void* from, std::size_t count);

// The distribution of `parts` over the ranks. Each has a range of parts, one or more, and reduces
// each of the largest nodes of the tree within this range. REQUIRES: parts is a power of two, or
// the world size.
class TreePartition {
 public:
  struct Node {
    int first, count;  // parts [first, first + count)
    int rank, index;   // the index-th node of this rank
  };
  // Each rank has the parts of base::part_bounds().
  TreePartition(int parts, int world);
  // Rank r has parts [bounds[r], bounds[r + 1]). REQUIRES: the bounds increase from 0.
  explicit TreePartition(std::vector<int> bounds);

  int parts() const { return static_cast<int>(node_at_.size()); }
  int world() const { return static_cast<int>(nodes_of_rank_.size()) - 1; }
  int first(int rank) const { return bounds_[static_cast<std::size_t>(rank)]; }
  int count(int rank) const { return first(rank + 1) - first(rank); }
  std::span<const Node> nodes() const { return nodes_; }  // in the order of their parts
  std::span<const Node> nodes(int rank) const;
  int max_nodes() const { return max_nodes_; }  // the maximum over all ranks

  // Combines the nodes of all ranks: calls combine(into, from) for pairs of nodes; the result is in
  // the first one.
  template <class Combine>
  void fold(Combine combine) const {
    // If no node begins at `from`, the pair is within one node, which its rank has already reduced.
    reduce_tree(node_at_.size(), [&](std::size_t into, std::size_t from) {
      if (node_at_[from] >= 0) combine(node(into), node(from));
    });
  }

 private:
  const Node& node(std::size_t part) const {
    return nodes_[static_cast<std::size_t>(node_at_[part])];
  }

  std::vector<int> bounds_;  // first part of each rank, then the number of parts
  std::vector<Node> nodes_;
  std::vector<int> node_at_;        // for each part: the node that begins there, or -1
  std::vector<int> nodes_of_rank_;  // index of each rank's first node, then the total
  int max_nodes_ = 0;
};

// Sums memory over all parts, with the same bits for every rank, backend and world size. Every rank
// receives every node of the others, so it moves (nodes - 1) times the data; the number of nodes is
// close to the number of ranks.
class TreeSum {
 public:
  // `communicator`, which has the world of the cut, must outlive it. Each sum carries `note_bytes`.
  TreeSum(const TreePartition& cut, backends::Communicator& communicator, std::size_t note_bytes);

  // `own` has `count` elements for each node of this rank; the first node becomes the sum over all
  // parts. Collective.
  void sum(DType dtype, std::span<void* const> own, std::size_t count);
  // note() is written before a sum on this rank; note_of(rank) reads after it what `rank` wrote.
  // Notes need no collective of their own: they carry the few bytes that ranks exchange in each
  // step.
  std::span<std::byte> note() { return std::span(last_block_).last(note_bytes_); }
  std::span<const std::byte> note_of(int rank) const;

 private:
  const TreePartition cut_;
  backends::Communicator& communicator_;
  const std::size_t note_bytes_;
  std::vector<std::byte> blocks_;      // the first nodes of all ranks, then the second ones, ...
  std::vector<std::byte> last_block_;  // this rank's last block; the note is at the end of the
                                       // memory
  std::size_t last_bytes_ = 0;         // size of the last block without the note
};

}  // namespace engine
