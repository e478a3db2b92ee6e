// The functions of MPI that this program calls, for one ABI: typed by its handles.
#pragma once

#include <cstddef>
#include <mutex>

#include "backends/backend_error.h"
#include "backends/transport/mpi/mpi_library.h"

namespace backends {

// The constants of an ABI. MPI_SUCCESS is 0 in all of them.
template <typename Handle>
struct MpiConstants {
  Handle world;          // MPI_COMM_WORLD
  Handle byte;           // MPI_BYTE
  Handle errors_return;  // MPI_ERRORS_RETURN
  int any_source, any_tag;
  int thread_serialized;
};

// The functions that take no handle.
struct MpiProcessFunctions {
  int (*MPI_Init_thread)(int*, char***, int, int*) = nullptr;
  int (*MPI_Initialized)(int*) = nullptr;
  int (*MPI_Query_thread)(int*) = nullptr;
  int (*MPI_Finalized)(int*) = nullptr;
  int (*MPI_Finalize)() = nullptr;
  int (*MPI_Error_string)(int, char*, int*) = nullptr;

  // `find`: (name, reference to the function)
  template <typename Find>
  void find_all(const Find& find) {
    find("MPI_Init_thread", MPI_Init_thread);
    find("MPI_Initialized", MPI_Initialized);
    find("MPI_Query_thread", MPI_Query_thread);
    find("MPI_Finalized", MPI_Finalized);
    find("MPI_Finalize", MPI_Finalize);
    find("MPI_Error_string", MPI_Error_string);
  }
};

// Handle is int or a pointer: passed as the library expects it. A status is memory that the library
// fills; counts of elements are counts of bytes.
template <typename Handle>
struct MpiFunctions {
  MpiProcessFunctions process;
  int (*MPI_Comm_rank)(Handle, int*) = nullptr;
  int (*MPI_Comm_size)(Handle, int*) = nullptr;
  int (*MPI_Comm_group)(Handle, Handle*) = nullptr;
  int (*MPI_Group_incl)(Handle, int, const int*, Handle*) = nullptr;
  int (*MPI_Group_free)(Handle*) = nullptr;
  int (*MPI_Comm_create_group)(Handle, Handle, int, Handle*) = nullptr;
  int (*MPI_Comm_set_errhandler)(Handle, Handle) = nullptr;
  int (*MPI_Comm_free)(Handle*) = nullptr;
  int (*MPI_Iallgather)(const void*, int, Handle, void*, int, Handle, Handle, Handle*) = nullptr;
  int (*MPI_Iallgatherv)(const void*, int, Handle, void*, const int*, const int*, Handle, Handle,
                         Handle*) = nullptr;
  int (*MPI_Ialltoall)(const void*, int, Handle, void*, int, Handle, Handle, Handle*) = nullptr;
  int (*MPI_Ialltoallv)(const void*, const int*, const int*, Handle, void*, const int*, const int*,
                        Handle, Handle, Handle*) = nullptr;
  int (*MPI_Ibcast)(void*, int, Handle, int, Handle, Handle*) = nullptr;
  int (*MPI_Test)(Handle*, int*, void*) = nullptr;
  int (*MPI_Iprobe)(int, int, Handle, int*, void*) = nullptr;

  template <typename Find>
  void find_all(const Find& find) {
    process.find_all(find);
    find("MPI_Comm_rank", MPI_Comm_rank);
    find("MPI_Comm_size", MPI_Comm_size);
    find("MPI_Comm_group", MPI_Comm_group);
    find("MPI_Group_incl", MPI_Group_incl);
    find("MPI_Group_free", MPI_Group_free);
    find("MPI_Comm_create_group", MPI_Comm_create_group);
    find("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler);
    find("MPI_Comm_free", MPI_Comm_free);
    find("MPI_Iallgather", MPI_Iallgather);
    find("MPI_Iallgatherv", MPI_Iallgatherv);
    find("MPI_Ialltoall", MPI_Ialltoall);
    find("MPI_Ialltoallv", MPI_Ialltoallv);
    find("MPI_Ibcast", MPI_Ibcast);
    find("MPI_Test", MPI_Test);
    find("MPI_Iprobe", MPI_Iprobe);
  }
};

template <typename Handle>
class MpiCalls final : public MpiLibrary {
 public:
  MpiCalls(MpiFunctions<Handle> functions, MpiConstants<Handle> constants)
      : f_(functions), constants_(constants) {}

  void start() override {
    const std::lock_guard lock(mutex_);
    int started = 0, level = 0;
    check(f_.process.MPI_Initialized(&started), "MPI_Initialized");
    if (started != 0) {
      check(f_.process.MPI_Query_thread(&level), "MPI_Query_thread");
    } else {
      check(f_.process.MPI_Init_thread(nullptr, nullptr, constants_.thread_serialized, &level),
            "MPI_Init_thread");
      started_here_ = true;
    }
    if (level < constants_.thread_serialized)
      throw ConfigurationError(version + " (" + path + ") allows calls from one thread only");
    check(f_.MPI_Comm_set_errhandler(constants_.world, constants_.errors_return),
          "MPI_Comm_set_errhandler");
  }

  int world_rank() override { return number(f_.MPI_Comm_rank, "MPI_Comm_rank"); }
  int world_size() override { return number(f_.MPI_Comm_size, "MPI_Comm_size"); }

  std::unique_ptr<MpiChannel> connect(const std::vector<int>& world_ranks, int tag) override {
    const std::lock_guard lock(mutex_);
    Handle world{}, group{}, comm{};
    check(f_.MPI_Comm_group(constants_.world, &world), "MPI_Comm_group");
    check(
        f_.MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &group),
        "MPI_Group_incl");
    check(f_.MPI_Comm_create_group(constants_.world, group, tag, &comm), "MPI_Comm_create_group");
    f_.MPI_Group_free(&group);
    f_.MPI_Group_free(&world);
    check(f_.MPI_Comm_set_errhandler(comm, constants_.errors_return), "MPI_Comm_set_errhandler");
    return std::make_unique<Channel>(*this, comm);
  }

  void finish(bool peers_may_be_missing) override {
    const std::lock_guard lock(mutex_);
    int finalized = 0;
    if (!started_here_ || f_.process.MPI_Finalized(&finalized) != 0 || finalized != 0) return;
    if (!peers_may_be_missing) f_.process.MPI_Finalize();
  }

 private:
  class Channel final : public MpiChannel {
   public:
    Channel(MpiCalls& mpi, Handle comm) : mpi_(mpi), comm_(comm) {}

    void begin_all_gather(const void* own, int bytes, void* all) override {
      call(mpi_.f_.MPI_Iallgather, "MPI_Iallgather", own, bytes, byte(), all, bytes, byte(), comm_,
           &request_);
    }
    void begin_all_gather_blocks(const void* own, int bytes, MpiBlocks all) override {
      call(mpi_.f_.MPI_Iallgatherv, "MPI_Iallgatherv", own, bytes, byte(), all.data, all.bytes,
           all.offsets, byte(), comm_, &request_);
    }
    void begin_all_to_all(const void* outgoing, int bytes, void* incoming) override {
      call(mpi_.f_.MPI_Ialltoall, "MPI_Ialltoall", outgoing, bytes, byte(), incoming, bytes, byte(),
           comm_, &request_);
    }
    void begin_all_to_all_blocks(MpiBlocks outgoing, MpiBlocks incoming) override {
      call(mpi_.f_.MPI_Ialltoallv, "MPI_Ialltoallv", outgoing.data, outgoing.bytes,
           outgoing.offsets, byte(), incoming.data, incoming.bytes, incoming.offsets, byte(), comm_,
           &request_);
    }
    void begin_broadcast(void* data, int bytes, int root) override {
      call(mpi_.f_.MPI_Ibcast, "MPI_Ibcast", data, bytes, byte(), root, comm_, &request_);
    }
    bool is_complete() override {
      int done = 0;
      call(mpi_.f_.MPI_Test, "MPI_Test", &request_, &done, status_);
      return done != 0;
    }
    void progress() noexcept override {
      const std::lock_guard lock(mpi_.mutex_);
      int found = 0;
      mpi_.f_.MPI_Iprobe(mpi_.constants_.any_source, mpi_.constants_.any_tag, comm_, &found,
                         status_);
    }
    void free() noexcept override {
      const std::lock_guard lock(mpi_.mutex_);
      mpi_.f_.MPI_Comm_free(&comm_);
    }

   private:
    Handle byte() const { return mpi_.constants_.byte; }
    template <typename Function, typename... Arguments>
    void call(Function function, const char* name, Arguments... arguments) {
      const std::lock_guard lock(mpi_.mutex_);
      mpi_.check(function(arguments...), name);
    }

    MpiCalls& mpi_;
    Handle comm_{}, request_{};
    // An MPI_Status: 20 bytes in MPICH's ABI, 24 in Open MPI's, 32 in the standard one.
    alignas(std::max_align_t) char status_[128] = {};
  };

  int number(int (*function)(Handle, int*), const char* name) {
    const std::lock_guard lock(mutex_);
    int result = 0;
    check(function(constants_.world, &result), name);
    return result;
  }

  void check(int code, const char* name) const {
    if (code == 0) return;
    char text[1024] = {};  // MPI_MAX_ERROR_STRING is 256 or 512
    int length = 0;
    f_.process.MPI_Error_string(code, text, &length);
    throw PeerError(std::string(name) + ": " + text);
  }

  const MpiFunctions<Handle> f_;
  const MpiConstants<Handle> constants_;
  bool started_here_ = false;
  std::mutex mutex_;
};

}  // namespace backends
