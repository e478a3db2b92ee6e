// The communicators of a session.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/group.h"
#include "engine/core/replica_exchange.h"
#include "engine/graph/graph.h"
#include "tools/options/table/session_options.h"
#include "tools/run/choices/compute_choice.h"

namespace tools {

// NCCL's communicators. They are made before memory is planned, since they take device memory that
// is then no longer free.
struct DeviceCommunicators {
  DeviceCommunicators(const SessionOptions& options, const Compute& compute,
                      backends::Group& group);

  // If null, gradients or their codes pass through host memory, bucket by bucket.
  std::unique_ptr<backends::DeviceCommunicator> gradients;
  // If null, averagings of parameters exchange them in host memory.
  std::unique_ptr<backends::DeviceCommunicator> parameters;
  // If null, layers exchange batch statistics in host memory.
  std::unique_ptr<backends::DeviceCommunicator> statistics;
  // By rank: with each other rank, for --sync gossip. If empty, pairs exchange parameters in host
  // memory.
  std::vector<std::unique_ptr<backends::DeviceCommunicator>> pairs;
};

// Has one communicator for each thread or stream whose calls may run concurrently with others.
struct SessionCommunicators {
  // Collective. `graph` determines if layers exchange statistics. `on_devices` must outlive this.
  SessionCommunicators(const SessionOptions& options, backends::Group& group,
                       const engine::Graph& graph, const DeviceCommunicators& on_devices);

  std::vector<int> island;  // ranks that form one replica
  // For all ranks: used by the policy or, in canonical order, the work.
  std::unique_ptr<backends::Communicator> averaging;
  std::unique_ptr<backends::Communicator> within_island;  // null: every rank is its own island
  // By rank: with each other rank, for --sync gossip; otherwise empty.
  std::vector<std::unique_ptr<backends::Communicator>> pairs;
  std::span<const std::unique_ptr<backends::DeviceCommunicator>>
      device_pairs;                                    // DeviceCommunicators::pairs
  backends::DeviceCommunicator* device;                // DeviceCommunicators::gradients
  backends::DeviceCommunicator* device_averaging;      // DeviceCommunicators::parameters
  backends::DeviceCommunicator* device_statistics;     // DeviceCommunicators::statistics
  std::unique_ptr<backends::Communicator> statistics;  // null: no layer exchanges statistics
  std::unique_ptr<engine::ReplicaExchange> replicas;   // uses `statistics`
};

}  // namespace tools
