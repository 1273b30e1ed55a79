"""The patients of the synthetic cohort: what goes on inside them in 4 hours, and what is measured of it.

Made up for tests and walk-throughs. Nothing in it was fitted to patients, and nothing learnt from it holds for any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

LEVELS = 5
"""Dose levels of each treatment, 0 = none."""
FLUID_L = np.array([0.0, 0.15, 0.35, 0.65, 1.1])
"""Intravenous fluid in 4 h by level, litres."""
VASO = np.array([0.0, 0.05, 0.12, 0.25, 0.45])
"""Vasopressor by level, mcg/kg/min of noradrenaline."""

FEATURES: dict[str, tuple[str, float]] = {
    "gender": ("1 = female", 0),
    "mechvent": ("1 = ventilated", 0),
    "max_dose_vaso": ("mcg/kg/min, last 4 h", 0),
    "re_admission": ("1 = yes", 0),
    "age": ("years", 65),
    "Weight_kg": ("kg", 80),
    "GCS": ("3-15", 15),
    "HR": ("/min", 85),
    "SysBP": ("mmHg", 120),
    "MeanBP": ("mmHg", 80),
    "DiaBP": ("mmHg", 60),
    "RR": ("/min", 18),
    "Temp_C": ("C", 37),
    "FiO2_1": ("fraction", 0.3),
    "Potassium": ("mmol/L", 4.1),
    "Sodium": ("mmol/L", 139),
    "Chloride": ("mmol/L", 104),
    "Glucose": ("mg/dL", 130),
    "Magnesium": ("mg/dL", 2),
    "Calcium": ("mg/dL", 8.5),
    "Hb": ("g/dL", 10.5),
    "WBC_count": ("10^9/L", 11),
    "Platelets_count": ("10^9/L", 200),
    "PTT": ("s", 33),
    "PT": ("s", 14),
    "Arterial_pH": ("pH", 7.4),
    "paO2": ("mmHg", 100),
    "paCO2": ("mmHg", 40),
    "Arterial_BE": ("mmol/L", 0),
    "HCO3": ("mmol/L", 24),
    "Arterial_lactate": ("mmol/L", 1.5),
    "SOFA": ("0-24", 4),
    "SIRS": ("0-4", 1),
    "Shock_Index": ("HR / SysBP", 0.7),
    "PaO2_FiO2": ("mmHg", 350),
    "cumulated_balance": ("mL", 0),
    "SpO2": ("%", 97),
    "BUN": ("mg/dL", 22),
    "Creatinine": ("mg/dL", 1.1),
    "SGOT": ("U/L", 40),
    "SGPT": ("U/L", 35),
    "Total_bili": ("mg/dL", 0.8),
    "INR": ("ratio", 1.2),
    "input_total": ("mL since admission", 0),
    "input_4hourly": ("mL in the last 4 h", 0),
    "output_total": ("mL since admission", 0),
    "output_4hourly": ("mL in the last 4 h", 300),
    "urine_ml_kg_h": ("mL/kg/h in the last 4 h", 1),
}
"""Names of the published layout with units, and the value assumed where none was measured yet."""
CHARTED = frozenset(
    [
        "gender",
        "mechvent",
        "max_dose_vaso",
        "re_admission",
        "age",
        "Weight_kg",
        "SOFA",
        "SIRS",
        "cumulated_balance",
        "input_total",
        "input_4hourly",
        "output_total",
        "output_4hourly",
        "urine_ml_kg_h",
    ]
)
"""Always there."""
VITALS = frozenset(["GCS", "HR", "SysBP", "MeanBP", "DiaBP", "RR", "Temp_C", "FiO2_1", "SpO2", "Shock_Index"])


@dataclass(frozen=True)
class Body:
    """B patients. Arrays (B,)."""

    female: np.ndarray
    age: np.ndarray
    weight: np.ndarray
    readmitted: np.ndarray
    pressure: np.ndarray
    """Mean blood pressure when well, mmHg."""
    infection: np.ndarray
    """0: none, 1: full septic shock."""
    clearing: np.ndarray
    """Share of the infection that is left after 4 h of antibiotics."""
    deficit: np.ndarray
    """Litres missing in the vessels; below 0: too many."""
    dilation: np.ndarray
    """Loss of vascular tone."""
    lungs: np.ndarray
    """Injury, 0: none."""
    kidneys: np.ndarray
    damage: np.ndarray
    """Of organs; what kills."""
    iv: np.ndarray
    """Fluid of the last 4 h, litres."""
    vaso: np.ndarray
    given: np.ndarray
    """Fluid since admission, mL."""
    output: np.ndarray
    """Urine since admission, mL."""
    urine: np.ndarray
    """mL/kg/h in the last 4 h."""

    @property
    def mean_pressure(self) -> np.ndarray:
        """mmHg; vasopressors work poorly on empty vessels."""
        empty = np.maximum(self.deficit, 0)
        raised = 55 * self.vaso / (0.2 + self.vaso) / (1 + 0.6 * empty)
        return np.clip(self.pressure - 11 * empty - 30 * self.dilation + raised, 30, 130)


def admitted(count: int, rng: np.random.Generator) -> Body:
    """New patients with sepsis."""
    infection = rng.beta(2.4, 1.8, count) * 1.3
    zeros = np.zeros(count)
    return Body(
        female=rng.random(count) < 0.44,
        age=np.clip(rng.normal(65, 15, count), 18, 95),
        weight=np.clip(rng.normal(81, 18, count), 40, 180),
        readmitted=rng.random(count) < 0.3,
        pressure=rng.normal(86, 7, count),
        infection=infection,
        clearing=rng.uniform(0.84, 0.98, count),
        deficit=np.maximum(rng.normal(0.9, 0.6, count) + 0.6 * infection, 0),
        dilation=0.5 * infection * rng.uniform(0.5, 1.3, count),
        lungs=rng.beta(1.5, 4, count),
        kidneys=rng.beta(1.3, 6, count),
        damage=0.45 * rng.beta(1.5, 4, count) + 0.2 * infection,
        iv=zeros,
        vaso=zeros,
        given=zeros,
        output=zeros,
        urine=np.full(count, 0.8),
    )


def four_hours(body: Body, iv: np.ndarray, vaso: np.ndarray, rng: np.random.Generator) -> Body:
    """The same patients 4 h later, under dose levels (B,) of fluid and vasopressor."""
    fluid, pressor = FLUID_L[iv], VASO[vaso]
    noise = rng.normal(size=(5, len(fluid)))
    infection = np.maximum(body.infection * body.clearing + 0.03 * noise[0], 0)
    deficit = 0.93 * body.deficit + 0.17 * infection - 0.55 * fluid + 0.08 * noise[1]
    dilation = np.maximum(0.86 * body.dilation + 0.09 * infection + 0.03 * noise[2], 0)
    moved = replace(body, infection=infection, deficit=deficit, dilation=dilation, iv=fluid, vaso=pressor)
    low = np.maximum(65 - moved.mean_pressure, 0) / 15
    overload = np.maximum(-deficit - 0.3, 0)
    dry_pressor = pressor * np.maximum(deficit - 0.4, 0)  # squeezing empty vessels starves the organs
    lungs = np.maximum(0.93 * body.lungs + 0.12 * overload + 0.025 * infection + 0.02 * noise[3], 0)
    kidneys = np.clip(0.95 * body.kidneys + 0.07 * low + 0.1 * dry_pressor, 0, 1)
    damage = 0.95 * body.damage + 0.11 * low + 0.05 * overload + 0.25 * dry_pressor + 0.06 * pressor**2
    damage = np.maximum(damage + 0.045 * infection + 0.08 * np.maximum(lungs - 0.5, 0) + 0.015 * noise[4], 0)
    flow = 1.3 / (1 + np.exp(-(moved.mean_pressure - 60) / 6)) * (1 - kidneys)
    urine = np.maximum(flow - 0.25 * np.maximum(deficit, 0), 0.02)
    return replace(
        moved,
        lungs=lungs,
        kidneys=kidneys,
        damage=damage,
        given=body.given + 1000 * fluid,
        output=body.output + 4 * urine * body.weight,
        urine=urine,
    )


def death_chance(body: Body) -> np.ndarray:
    """(B,): in the last 4 h."""
    return 1 / (1 + np.exp(7.4 - 4.6 * body.damage - 0.012 * (body.age - 65)))


def late_death_chance(body: Body) -> np.ndarray:
    """(B,): after the window, within 90 days."""
    return 1 / (1 + np.exp(3.7 - 4.2 * body.damage - 0.9 * body.infection - 0.02 * (body.age - 65)))


def recovered(body: Body) -> np.ndarray:
    """(B,) bool: well enough to leave intensive care."""
    return (body.infection < 0.15) & (body.damage < 0.4) & (body.vaso == 0) & (body.mean_pressure > 65)


def sofa(body: Body) -> np.ndarray:
    """(B,): 0-24, from the organs."""
    pressure = np.where(body.vaso > 0.1, 4, np.where(body.vaso > 0, 3, body.mean_pressure < 70))
    organs = 4 * body.lungs + 4 * body.kidneys + 5 * body.damage
    return np.clip(np.round(pressure + organs), 0, 24)


def measured(body: Body, rng: np.random.Generator) -> np.ndarray:
    """(B, 48), float64: what charts and laboratory would say now, all of it, in the order of `FEATURES`."""
    noise = iter(rng.normal(size=(len(FEATURES), len(body.age))))
    values = _circulation(body, noise) | _breathing(body, noise) | _blood(body, noise) | _balance(body)
    return np.stack([values[name] for name in FEATURES], 1)


def _circulation(body: Body, noise: Iterator[np.ndarray]) -> dict[str, np.ndarray]:
    pressure = body.mean_pressure + 2 * next(noise)
    systolic = 1.42 * pressure + 3 * next(noise)
    rate = 78 + 14 * np.maximum(body.deficit, 0) + 20 * body.infection + 30 * body.vaso + 5 * next(noise)
    temperature = 37 + 1.1 * body.infection + 0.3 * next(noise)
    breaths = 16 + 9 * body.lungs + 3 * body.infection + 2 * next(noise)
    signs = [np.abs(temperature - 37) > 1, rate > 90, breaths > 20, body.infection > 0.5]
    return {
        "HR": rate,
        "MeanBP": pressure,
        "SysBP": systolic,
        "DiaBP": 0.79 * pressure + 2 * next(noise),
        "Shock_Index": rate / systolic,
        "Temp_C": temperature,
        "RR": breaths,
        "SIRS": np.sum(signs, 0).astype(float),
        "SOFA": sofa(body),
        "GCS": np.clip(np.round(15 - 5 * body.damage + 0.7 * next(noise)), 3, 15),
    }


def _breathing(body: Body, noise: Iterator[np.ndarray]) -> dict[str, np.ndarray]:
    ventilated = body.lungs > 0.7
    oxygen = np.clip(0.25 + 0.4 * body.lungs, 0.21, 1)
    ratio = np.clip(430 - 300 * body.lungs + 20 * next(noise), 40, 600)
    acid = _lactate(body) + 0.3 * next(noise)
    return {
        "mechvent": ventilated.astype(float),
        "FiO2_1": oxygen,
        "PaO2_FiO2": ratio,
        "paO2": ratio * oxygen,
        "paCO2": 40 + 5 * body.lungs + 3 * next(noise),
        "SpO2": np.clip(99 - 13 * body.lungs**1.2 + 0.8 * next(noise), 60, 100),
        "Arterial_lactate": np.maximum(acid, 0.3),
        "Arterial_pH": 7.42 - 0.022 * acid + 0.02 * next(noise),
        "Arterial_BE": 2 - 1.2 * acid + next(noise),
        "HCO3": 25 - 0.9 * acid + next(noise),
    }


def _lactate(body: Body) -> np.ndarray:
    low = np.maximum(65 - body.mean_pressure, 0) / 15
    return 0.9 + 1.8 * low + 1.7 * body.damage + 0.8 * body.infection


def _blood(body: Body, noise: Iterator[np.ndarray]) -> dict[str, np.ndarray]:
    ill, kidneys = body.damage, body.kidneys
    urea = np.exp(2.8 + 1.5 * kidneys + 0.15 * next(noise))
    return {
        "Potassium": 4 + 0.8 * kidneys + 0.3 * next(noise),
        "Sodium": 139 + 3 * next(noise),
        "Chloride": 104 + 0.0006 * body.given + 3 * next(noise),
        "Glucose": np.exp(4.85 + 0.2 * body.infection + 0.2 * next(noise)),
        "Magnesium": 2 + 0.2 * next(noise),
        "Calcium": 8.6 - 0.4 * ill + 0.4 * next(noise),
        "Hb": np.maximum(11.5 - 0.00015 * body.given + next(noise), 4),
        "WBC_count": np.exp(2.2 + 0.5 * body.infection + 0.25 * next(noise)),
        "Platelets_count": np.exp(5.4 - 0.5 * ill - 0.2 * body.infection + 0.2 * next(noise)),
        "PTT": np.exp(3.4 + 0.25 * ill + 0.12 * next(noise)),
        "PT": np.exp(2.6 + 0.25 * ill + 0.1 * next(noise)),
        "INR": np.exp(0.1 + 0.3 * ill + 0.1 * next(noise)),
        "BUN": urea,
        "Creatinine": np.exp(-0.2 + 1.6 * kidneys + 0.12 * next(noise)),
        "SGOT": np.exp(3.4 + 1.2 * ill + 0.3 * next(noise)),
        "SGPT": np.exp(3.3 + 1.1 * ill + 0.3 * next(noise)),
        "Total_bili": np.exp(-0.5 + 0.9 * ill + 0.2 * next(noise)),
    }


def _balance(body: Body) -> dict[str, np.ndarray]:
    return {
        "gender": body.female.astype(float),
        "re_admission": body.readmitted.astype(float),
        "age": body.age,
        "Weight_kg": body.weight,
        "max_dose_vaso": body.vaso,
        "input_total": body.given,
        "input_4hourly": 1000 * body.iv,
        "output_total": body.output,
        "output_4hourly": 4 * body.urine * body.weight,
        "urine_ml_kg_h": body.urine,
        "cumulated_balance": body.given - body.output,
    }
