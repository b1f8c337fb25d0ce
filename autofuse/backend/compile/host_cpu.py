"""The host's CPU as TVM's LLVM sees it, and the device profiles that need to know."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from autofuse.backend.compile.function import LEFT_OUT, tvm_target
from autofuse.device.host import HostCpu, probe_host
from autofuse.device.profile import LOCAL, DeviceProfile, require_features, resolve_profile
from autofuse.kernels.tir.features import has_feature


@cache
def llvm_host_cpu() -> HostCpu:
    """LLVM's name of this machine's CPU with the features that name switches on. Loads TVM (about a second)."""
    from tvm.target import Target, codegen

    mcpu = str(codegen.llvm_get_system_cpu())
    features = codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": mcpu}))
    return HostCpu(mcpu, frozenset(map(str, features)))


@cache
def local_device() -> DeviceProfile:
    """This machine's profile; the same object for the life of the process."""
    return probe_host(llvm_host_cpu())


def device_named(device: str) -> DeviceProfile:
    """The profile that `--device` means; see `autofuse.device.profile.resolve_profile`.

    InputError when LLVM does not know its CPU, or knows that it lacks a feature which the profile uses.
    """
    profile = resolve_profile(device, local_device())
    if device != LOCAL:
        tvm_target(profile.target())
        require_features(profile, core_features(profile))
    return profile


def core_features(profile: DeviceProfile) -> frozenset[str]:
    """LLVM's features of the profile's CPU, before the profile adds or removes any."""
    from tvm.target import codegen

    bare = replace(profile.target(), mattr=())
    left_out = {LEFT_OUT} if has_feature(bare, LEFT_OUT) else set()
    return frozenset(map(str, codegen.llvm_get_cpu_features(tvm_target(bare)))) | left_out


def llvm_version() -> str | None:
    """Major version of the LLVM inside TVM; None when this TVM was built without one."""
    from tvm.target import codegen

    major = codegen.llvm_version_major(allow_none=True)
    return None if major is None else str(major)


def accepts(profile: DeviceProfile) -> bool:
    """Whether TVM's LLVM knows the profile's `mcpu`; an unknown one would silently become generic code."""
    from tvm.target import codegen

    triple = profile.mtriple or str(codegen.llvm_get_system_triple())
    return bool(codegen.llvm_is_valid_cpu(profile.mcpu, triple))


def serving_cpu() -> HostCpu:
    """See `llvm_host_cpu`; nothing is known where TVM is installed without its compiler, as devices have it."""
    from tvm.base import _RUNTIME_ONLY

    return HostCpu("") if _RUNTIME_ONLY else llvm_host_cpu()
