// Sums whose rounding depends only on the order of the parts, not on how many ranks hold them.
//
// Floating-point addition is not associative: (a + b) + (c + d) and ((a + b) + c) + d may differ in
// the last bit. The tree fixes the parentheses once for all parts. Eight parts are always
// ((0+1)+(2+3))+((4+5)+(6+7)). Of three ranks the second has the parts 2, 3 and 4: it folds 2+3,
// which is a node of the tree, and keeps 4 beside it; every rank then combines the nodes of all
// ranks as the rest of the tree says. Hence any number of ranks gets the same bits (ADR 12).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/dtype.h"

namespace engine {

// Combines parts 0 .. count-1 in place as ((0+1)+(2+3))+((4+5)+...): combine(into, from) for each
// pair; the result is part 0's. Folding runs of 2^k parts first and the results afterwards is the
// same tree.
template <class Combine>
void reduce_tree(std::size_t count, Combine combine) {
  for (std::size_t stride = 1; stride < count; stride *= 2)
    for (std::size_t i = 0; i + stride < count; i += 2 * stride) combine(i, i + stride);
}

// A block of moments: how many rows, then a mean per channel, then a sum of squared differences
// from it per channel. `into` becomes that of both sets of rows. Source: Chan, Golub and LeVeque,
// 1979 (pairwise merging of variances).
void merge_moments(std::span<double> into, std::span<const double> from);

// `count` elements at `into` += those at `from`. f32 or f64.
void add_elements(DType dtype, void* into, const void* from, std::size_t count);

// How `parts` lie on the ranks: rank r of n has parts [parts * r / n, parts * (r + 1) / n), and
// folds each of the largest nodes of the tree within this run. REQUIRES: 1 <= world <= parts; parts
// is a power of two, or the world size.
class TreePartition {
 public:
  struct Node {
    int first, count;  // parts [first, first + count)
    int rank, index;   // the index-th node of this rank
  };
  TreePartition(int parts, int world);

  int parts() const { return static_cast<int>(node_at_.size()); }
  int world() const { return static_cast<int>(nodes_of_rank_.size()) - 1; }
  int first(int rank) const { return parts() * rank / world(); }
  int count(int rank) const { return first(rank + 1) - first(rank); }
  std::span<const Node> nodes() const { return nodes_; }  // by their parts
  std::span<const Node> nodes(int rank) const;
  int max_nodes() const { return max_nodes_; }  // of any rank

  // What is left of the tree: combine(into, from) for pairs of nodes; the result is the first
  // one's.
  template <class Combine>
  void fold(Combine combine) const {
    // Where `from` begins no node, the pair lies within one, which its rank has folded.
    reduce_tree(node_at_.size(), [&](std::size_t into, std::size_t from) {
      if (node_at_[from] >= 0) combine(node(into), node(from));
    });
  }

 private:
  const Node& node(std::size_t part) const {
    return nodes_[static_cast<std::size_t>(node_at_[part])];
  }

  std::vector<Node> nodes_;
  std::vector<int> node_at_;        // by part: the node that begins there, or -1
  std::vector<int> nodes_of_rank_;  // the first one's number; one entry more than ranks
  int max_nodes_ = 0;
};

// Sums memory over all parts: the same bits everywhere, on every wire, for every world. Every rank
// receives every node of the others, so it moves (nodes - 1) times the data; nodes are about as
// many as ranks.
class TreeSum {
 public:
  // `communicator`, of the cut's world, outlives it. `note_bytes` go along with each sum.
  TreeSum(const TreePartition& cut, backends::Communicator& communicator, std::size_t note_bytes);

  // `own`: `count` elements for each node of this rank; the first ones become the sum over all
  // parts. Collective.
  void sum(DType dtype, std::span<void* const> own, std::size_t count);
  // To be written before a sum, on this rank; what rank `rank` wrote, after it. They have no
  // collective of their own: for the few bytes that ranks exchange in each step anyway.
  std::span<std::byte> note() { return std::span(last_block_).last(note_bytes_); }
  std::span<const std::byte> note_of(int rank) const;

 private:
  const TreePartition cut_;
  backends::Communicator& communicator_;
  const std::size_t note_bytes_;
  std::vector<std::byte> blocks_;      // the first nodes of all ranks, then their second ones, ...
  std::vector<std::byte> last_block_;  // this rank's, with the note at the memory's end
  std::size_t last_bytes_ = 0;         // of it, without the note
};

}  // namespace engine
