"""The values that the functions of `autofuse.api` answer with, under one roof; for annotations.

They load what makes them: import them under `TYPE_CHECKING` where starting fast matters.
"""

from autofuse.api.databases import DatabaseMerge
from autofuse.api.jobs import Stopping
from autofuse.api.libraries import CheckedLibrary
from autofuse.api.machine import Serving
from autofuse.backend.library.compiled import Library
from autofuse.backend.library.files import RunOutput, RunReport
from autofuse.benchmark import BenchReport, RivalReport
from autofuse.checks.check import Check
from autofuse.compiler import CompileReport
from autofuse.database.files.merge import MergeReport
from autofuse.database.job_records import JobInfo, TaskInfo
from autofuse.environment.alone import WhoRuns
from autofuse.environment.worth import MoreTime, OpenQuestions, Waterfall
from autofuse.fusion.evidence import GroupTime
from autofuse.fusion.explain import EdgeReason
from autofuse.graph.transform.quantize.certificate import Certificate, TriedSet
from autofuse.job.outcome import JobOutcome, TaskOutcome
from autofuse.learning.judge import Judgement
from autofuse.opened.bench import MixReport, SizesReport
from autofuse.parted.pareto import PartsFront
from autofuse.precision.report import ContractionReport, Quantized
from autofuse.search.composition.pareto import Point
from autofuse.search.lab.revalidation import Revalidated
from autofuse.search.progress import (
    AskedQuestions,
    ChoiceDecision,
    CompositionReport,
    Forecast,
    ForecastChanges,
    PartsForecast,
    PlanTime,
    Progress,
    RangeChoice,
    RowsForecast,
    SizeRatio,
    TuneResult,
)
from autofuse.segments.report import PartReport, RestReport
from autofuse.torch_backend.cache import CacheReport
from autofuse.views.inspect import GraphSummary
from autofuse.views.one_plan import Explanation, PlanDifference, PlanExport, ShownPlan
from autofuse.views.parts import PartsDifference, PartsExplanation, PartsExport, PartsSummary, ShownParts
from autofuse.views.report.reports import Comparison, Report
from autofuse.views.run_status import RunStatus

__all__ = [
    "AskedQuestions", "BenchReport", "CacheReport", "Certificate", "Check", "CheckedLibrary", "ChoiceDecision",
    "Comparison", "CompileReport", "CompositionReport", "ContractionReport", "DatabaseMerge", "EdgeReason",
    "Explanation", "Forecast", "ForecastChanges", "GraphSummary", "GroupTime", "JobInfo", "JobOutcome", "Judgement",
    "Library", "MergeReport", "MixReport", "MoreTime", "OpenQuestions", "PartReport", "PartsDifference",
    "PartsExplanation", "PartsExport", "PartsForecast", "RowsForecast", "PartsFront", "PartsSummary", "PlanDifference",
    "PlanExport", "PlanTime", "Point", "Progress", "Quantized", "RangeChoice", "Report", "RestReport", "Revalidated",
    "RivalReport", "RunOutput", "RunReport", "RunStatus", "Serving", "ShownParts", "ShownPlan", "SizeRatio",
    "SizesReport", "Stopping", "TaskInfo", "TaskOutcome", "TriedSet", "TuneResult", "Waterfall", "WhoRuns",
]  # fmt: skip
