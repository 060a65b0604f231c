-- The health of an ExactlyOnceStream, for Argo CD. Put it into the ConfigMap argocd-cm under the key
-- resource.customizations.health.exactlyonce.dev_ExactlyOnceStream
-- It reads the conditions that the operator makes; tests/unit/test_conditions.py runs it for every phase.
local waiting = { status = "Progressing", message = "The operator has not looked at this version of the stream yet." }
local status = obj.status
if status == nil or status.conditions == nil then
  return waiting
end
if obj.metadata.generation ~= nil and status.observedGeneration ~= obj.metadata.generation then
  return waiting
end

local holds = {}
for _, condition in ipairs(status.conditions) do
  if condition.status == "True" then
    holds[condition.type] = condition
  end
end

if holds.Stalled ~= nil then
  return { status = "Degraded", message = holds.Stalled.message }
end
if holds.Reconciling ~= nil then
  return { status = "Progressing", message = holds.Reconciling.message }
end
if holds.Ready == nil then
  return waiting
end
if status.phase == "Suspended" then
  return { status = "Suspended", message = holds.Ready.message }
end
return { status = "Healthy", message = holds.Ready.message }
