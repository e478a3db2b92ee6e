// An example of a backend outside the tree: ranks exchange files in a folder that all hosts share.
// docs/backend-plugins.md explains it.
//
// ENGINE_FILES_FOLDER is that folder (default: /dev/shm). In each call, every rank writes one file,
// the control word and its data, and reads those of all ranks. A file appears complete, because it
// is renamed. A rank that has read all files of a call knows that all ranks have completed the call
// before, and deletes its own file of that one.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backends/backend_error.h"
#include "backends/compose/plugin/backend_plugin.h"
#include "backends/control_word.h"
#include "backends/reduction.h"

namespace {

using namespace backends;

struct Folder {
  explicit Folder(std::string of) : path(std::move(of)) {}
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  const std::string path;
};

std::string make_folder() {
  const char* parent = std::getenv("ENGINE_FILES_FOLDER");
  std::string path = std::string(parent != nullptr ? parent : "/dev/shm") + "/engine_XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    throw ConfigurationError("cannot create a folder " + path + ": " + std::strerror(errno));
  return path;
}

class FilesCommunicator final : public Communicator {
 public:
  explicit FilesCommunicator(const BackendContext& context)
      : rank_(context.rank),
        size_(context.world_size),
        members_(context.members),
        timeout_(context.timeout),
        clock_(context.clock) {
    const std::string key = context.prefix + "/folder";
    if (rank_ == 0) {
      // Other ranks may still read when this one is done.
      const auto folder = std::make_shared<Folder>(make_folder());
      context.watch.retain_until_group_ends(folder);
      context.store.set(key, folder->path);
    }
    folder_ = context.store.get(key, context.time_to_connect());
  }

  std::string_view name() const override { return "files"; }
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }
  void abort(std::string_view) noexcept override { aborted_ = true; }

  void run(const Call& call) override {
    const ControlWord& word = call.word;
    const std::size_t count = word.count, ranks = members_.size();
    auto* data = static_cast<char*>(call.data);
    std::vector<std::string> parts(ranks);
    switch (word.operation) {
      case Operation::kAllReduce:
      case Operation::kReduceScatter: {
        exchange(word, data, count * size_of(word.type()), parts);
        std::vector<const void*> all(ranks);
        for (std::size_t r = 0; r < ranks; ++r) all[r] = parts[r].data();
        return reduce_parts(data, all.data(), size_, count, word.type(), word.op());
      }
      case Operation::kBroadcast:
        exchange(word, data, rank_ == word.root ? count : 0, parts);
        if (count > 0) std::memcpy(data, parts[word.root].data(), count);
        return;
      case Operation::kAllGather:
        exchange(word, call.input, count, parts);
        for (std::size_t r = 0; r < ranks && count > 0; ++r)
          std::memcpy(data + r * count, parts[r].data(), count);
        return;
      case Operation::kAllToAll:
        exchange(word, call.input, count * ranks, parts);
        for (std::size_t r = 0; r < ranks && count > 0; ++r)
          std::memcpy(data + r * count, parts[r].data() + static_cast<std::size_t>(rank_) * count,
                      count);
        return;
      case Operation::kBarrier:
      case Operation::kRegister:
        return exchange(word, nullptr, 0, parts);
    }
  }

 private:
  std::string file_of(std::uint32_t sequence, int rank) const {
    return folder_ + "/" + std::to_string(sequence) + "." + std::to_string(rank);
  }

  // Gives all ranks this rank's bytes, and returns those of rank r in parts[r].
  void exchange(const ControlWord& word, const void* bytes, std::size_t size,
                std::vector<std::string>& parts) const {
    const std::string own = file_of(word.sequence, rank_);
    std::ofstream file(own + ".part", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&word), sizeof word);
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
    file.close();
    if (!file || std::rename((own + ".part").c_str(), own.c_str()) != 0)
      throw PeerError("cannot write " + own + ": " + std::strerror(errno));
    for (int r = 0; r < size_; ++r) parts[static_cast<std::size_t>(r)] = receive(word, r);
    std::remove(file_of(word.sequence - 1, rank_).c_str());
  }

  std::string receive(const ControlWord& word, int rank) const {
    const int from = members_[static_cast<std::size_t>(rank)];
    const auto deadline = clock_.deadline_in(timeout_);
    std::ifstream file;
    for (file.open(file_of(word.sequence, rank), std::ios::binary); !file;
         file.open(file_of(word.sequence, rank), std::ios::binary)) {
      if (aborted_) throw PeerError("aborted");
      if (clock_.has_passed(deadline))
        throw PeerError("timeout after " + std::to_string(timeout_.count()) +
                        " ms, waiting for rank " + std::to_string(from));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      file.clear();
    }
    ControlWord theirs;
    file.read(reinterpret_cast<char*>(&theirs), sizeof theirs);
    expect_equal(word, members_[static_cast<std::size_t>(rank_)], theirs, from);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const int rank_, size_;
  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_;
  const base::Clock& clock_;
  std::string folder_;
  std::atomic<bool> aborted_{false};
};

std::unique_ptr<Communicator> make_files(const BackendContext& context) {
  return std::make_unique<FilesCommunicator>(context);
}

}  // namespace

extern "C" const Backend* engine_backend_plugin(const char* abi) {
  static const Backend row{"files", Reach::kHosts, true, "files in a shared folder", &make_files};
  return std::strcmp(abi, kBackendPluginAbi) == 0 ? &row : nullptr;
}
